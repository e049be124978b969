"""Turns of completions in a tool loop: the tokens of each turn, its reward, and its return.

Where tools answer amid a completion, the policy writes it in several turns. The score of a turn's tokens needs only the
rewards from that turn on, and its baseline is the value of having come to it: both have their place per turn. Turns are
ragged (completions have unequal numbers of them), so they stand here as one short array for each completion.
"""

from collections.abc import Sequence

import numpy as np


def turn_numbers(mask: np.ndarray) -> np.ndarray:
    """The 0-based turn of each token, a run of the policy's own tokens; -1 outside the mask; shape (N, T).

    The mask is True for tokens that the policy wrote: neither padding nor a tool's answer. A ValueError if it is not a
    matrix.
    """
    present = _matrix("mask", mask).astype(bool)
    return np.where(present, _begun(present) - 1, -1)


def turn_counts(mask: np.ndarray) -> np.ndarray:
    """Number of turns of each completion, ndarray of int, shape (N,); parameters and errors as `turn_numbers`."""
    return _begun(_matrix("mask", mask).astype(bool)).max(axis=1, initial=0)


def rewards_of_turns(token_rewards: np.ndarray, mask: np.ndarray) -> list[np.ndarray]:
    """The reward of each turn, summed over its tokens: for each of N completions float64, one entry per turn.

    A reward at a token of a tool's answer, or after the last turn, belongs to the turn before it (trainers put the
    reward of the outcome on the last token, whoever wrote it). A reward before the first turn belongs to the first. The
    rewards and the mask of `turn_numbers` have the same shape, (N, T), or it raises a ValueError.
    """
    rewards, present = _matrix("token_rewards", token_rewards), _matrix("mask", mask).astype(bool)
    if rewards.shape != present.shape:
        raise ValueError(f"token_rewards and mask must have one shape (N, T), got {rewards.shape} and {present.shape}.")
    begun = _begun(present)
    turn, counts = np.maximum(begun - 1, 0), begun.max(axis=1, initial=0)
    found = np.zeros((len(rewards), max(int(counts.max(initial=0)), 1)))
    np.add.at(found, (np.arange(len(rewards))[:, None], turn), rewards.astype(np.float64))
    return ragged(found, counts)


def returns_of_padded(rewards: np.ndarray, gamma: float) -> np.ndarray:
    """The return from each turn on, ``G_k = sum_{j >= k} gamma^(j - k) r_j``, (N, K); zeros stand after a last turn."""
    returns = rewards.copy()
    with np.errstate(over="ignore"):  # estimators refuse non-finite numbers
        for turn in range(rewards.shape[1] - 2, -1, -1):
            returns[:, turn] += gamma * returns[:, turn + 1]
    return returns


def spread_over_tokens(of_turns: Sequence[Sequence[float] | np.ndarray], mask: np.ndarray) -> np.ndarray:
    """The number of each turn, repeated at each of its tokens, float64 of shape (N, T); 0 outside the mask.

    The mask is as in `turn_numbers`. Raises a ValueError if a completion has a different number of turns in it.
    """
    padded, counts = padded_turns("of_turns", of_turns)
    turn, of_mask = turn_numbers(mask), turn_counts(mask)
    check_counts("of_turns", counts, of_mask)
    found = np.take_along_axis(padded, np.maximum(turn, 0), axis=1)
    return np.where(turn >= 0, found, 0.0)


def check_counts(name: str, counts: np.ndarray, wanted: np.ndarray) -> None:
    """Raise a ValueError unless each completion has one entry per turn; both have shape (N,)."""
    if len(counts) != len(wanted):
        raise ValueError(f"{name} has {len(counts)} entries for {len(wanted)} completions; give one each.")
    wrong = np.flatnonzero(counts != wanted)
    if len(wrong):
        first = int(wrong[0])
        raise ValueError(
            f"{name}: completion {first} has {counts[first]} entries, but {wanted[first]} turns (runs of tokens that "
            "the policy wrote); give one per turn."
        )


def padded_turns(name: str, of_turns: Sequence[Sequence[float] | np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Ragged numbers as an array of shape (N, K), padded with zeros, and the number of each, shape (N,)."""
    rows = []
    for number, row in enumerate(of_turns):
        array = np.asarray(row, dtype=np.float64)
        if array.ndim != 1:
            raise ValueError(f"{name}: entry {number} must hold one number per turn, got shape {array.shape}.")
        rows.append(array)
    counts = np.array([len(row) for row in rows], dtype=np.int64)
    padded = np.zeros((len(rows), max(int(counts.max(initial=0)), 1)))  # a first turn always
    padded[np.arange(padded.shape[1]) < counts[:, None]] = np.concatenate(rows) if rows else 0.0
    return padded, counts


def ragged(padded: np.ndarray, counts: np.ndarray) -> list[np.ndarray]:
    """The inverse of `padded_turns`; makes copies."""
    return [row[:count].copy() for row, count in zip(padded, counts, strict=True)]


def _begun(present: np.ndarray) -> np.ndarray:
    """How many turns have begun by each token, shape (N, T)."""
    before = np.zeros_like(present)
    before[:, 1:] = present[:, :-1]
    return np.cumsum(present & ~before, axis=1)


def _matrix(name: str, array: np.ndarray) -> np.ndarray:
    found = np.asarray(array)
    if found.ndim != 2:
        raise ValueError(f"{name} must have shape (N, T), got {found.shape}.")
    return found
