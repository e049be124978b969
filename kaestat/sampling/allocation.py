"""Expected numbers of completions: proportional to a score, between bounds, summing exactly to the budget."""

from typing import Any

import numpy as np

from kaestat.core.checks import check_column, check_number, check_share

ROUNDS = 200  # each fixes at least one more prompt at a bound, or bisects; a handful is usual


def allocate(score: Any, budget: float, *, share: Any = None, floor: float = 0.0, most: float = np.inf) -> np.ndarray:
    """Expected completions ``nu`` of each prompt: ``nu = clip(c score, floor B share, most)`` with ``sum nu = B``.

    For ``score = share sqrt(m / c)`` this is the allocation of least variance at its cost, between the bounds (Neyman,
    1934, for strata; here a convex problem, whose solution clips).

    Parameters
    ----------
    score : array-like of float, shape (P,)
        Wanted amount for each prompt, up to a factor; 0 or more. If all are 0, ``share`` is used instead.
    budget : float
        B, in completions (or groups).
    share : array-like of float, shape (P,), optional
        The prompts' weights pi in the objective, which sum to 1; None for all alike.
    floor : float
        Smallest part of its share that a prompt gets, in [0, 1): correction weights are at most ``1 / floor``.
    most : float
        Largest amount for one prompt.

    Returns
    -------
    ndarray of float, shape (P,)

    Raises
    ------
    TypeError
        If scores or shares are not numbers.
    ValueError
        If a number is out of range, or the budget or the floor exceeds ``most`` per prompt.

    Examples
    --------
    >>> allocate([3.0, 1.0, 0.0], 8, floor=0.375).tolist()
    [5.25, 1.75, 1.0]
    """
    score = check_column("score", score, least=0)
    if len(score) == 0:
        raise ValueError("score is empty: there is no prompt to sample.")
    share = np.full(len(score), 1 / len(score)) if share is None else check_column("share", share, len(score), least=0)
    if abs(share.sum() - 1) > 1e-9:
        raise ValueError(f"share must sum to 1 over the prompts, got {share.sum():.6g}.")
    budget = check_number("budget", budget)
    floor = check_share("floor", floor, allow_zero=True)
    if not budget > 0:
        raise ValueError(f"budget must be positive, got {budget!r}.")
    if floor >= 1:
        raise ValueError(f"floor must be below 1, which is uniform sampling, got {floor!r}.")
    if not most * len(score) >= budget * (1 - 1e-12):
        raise ValueError(
            f"budget {budget:g} is more than {len(score)} prompts can take at most={most:g} each; lower the budget, "
            "or raise most."
        )
    least = floor * budget * share
    if (least > most).any():
        raise ValueError(
            f"floor={floor:g} gives a prompt {least.max():g}, more than most={most:g}; lower the floor or raise most."
        )
    if not (score > 0).any():
        score = share
    return _water_filling(score / score.max(), budget, least, np.broadcast_to(float(most), score.shape))


def check_groups(n_groups: int, group_size: int, floor: float, share: np.ndarray) -> None:
    """Raise a ValueError unless prompts can get so many groups, at most one each, and the floor leaves room.

    ``share``, of shape (P,), sums to 1.
    """
    if n_groups > len(share):
        raise ValueError(
            f"budget={n_groups * group_size} is {n_groups} groups of {group_size}, more than {len(share)} prompts can "
            "take at one each per step: lower the budget, or leave group_size out."
        )
    largest = floor * n_groups * share.max()
    if largest > 1:
        raise ValueError(
            f"floor={floor:g} gives a prompt of share {share.max():.3g} {largest:.3g} groups a step, and it gets one "
            f"at most: lower the floor to {np.floor(1000 * floor / largest) / 1000:g}, or the budget."
        )


def _water_filling(score: np.ndarray, budget: float, least: np.ndarray, most: np.ndarray) -> np.ndarray:
    """``clip(c score, least, most)`` of sum ``budget``, c by Newton's method within a bracket."""
    reachable = np.where(score > 0, most, least).sum()
    if reachable < budget:  # prompts of score 0 must take the rest, in equal parts
        rest = np.where(score > 0, 0.0, most - least)
        spare = np.where(np.isfinite(rest), rest, 1.0) if np.isfinite(rest).all() else np.where(score > 0, 0.0, 1.0)
        return np.where(score > 0, most, least) + (budget - reachable) * spare / spare.sum()
    low, high, factor = 0.0, np.inf, budget / score.sum()
    for _ in range(ROUNDS):
        found = factor * score
        between = (found > least) & (found < most)
        np.clip(found, least, most, out=found)
        excess = found.sum() - budget
        if abs(excess) <= 1e-12 * budget:
            break
        low, high = (low, factor) if excess > 0 else (factor, high)
        slope = score.sum(where=between)
        step = factor - excess / slope if slope > 0 else np.inf
        if not low < step < high:
            step = (low + high) / 2 if np.isfinite(high) else 2 * factor
        factor = step
    return found
