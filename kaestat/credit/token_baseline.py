"""A baseline for every token: the optimal token baseline, of the group and of the prompt's past.

All else here subtracts one value from every token of a completion. By causality the score of token t needs only the
rewards from t on, and its best baseline is one of its own. What verl calls the optimal token baseline weighs each
completion by the squared norm of its score up to that token. Values per token have no place in `AdvantageEstimator`:
this is a function on arrays. Earlier completions of the prompt enter through `kaestat.credit.token_history`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np


def optimal_token_baseline(
    returns: np.ndarray,
    norms: np.ndarray,
    mask: np.ndarray,
    groups: Sequence[Hashable],
    *,
    without_own: bool = False,
    past: tuple[np.ndarray, np.ndarray] | None = None,
) -> np.ndarray:
    """Weighted mean return of the group at each token, and of earlier completions of the prompt where they are given.

    ``b_t = sum_i K_i W_it G_it / sum_i K_i W_it`` over the completions of the group that have a token t (``K_i = 1``)
    and those of earlier steps (``K_i`` the weight of their lag), with ``W_it = sum_{j <= t} norms_ij``. Where no other
    completion has a token t it is 0, so that the advantage is the return itself. Without a past these are verl's
    numbers (``optimal_token_baseline`` of 0.9.1, with its ``handle_zero_tail``) where the tokens in the loss stand
    together at the front.

    Parameters
    ----------
    returns : ndarray of float, shape (N, T)
        Sum of the rewards from each token on.
    norms : ndarray of float, shape (N, T)
        Non-negative squared norm of each token's score, or the logit-level ``1 - 2 pi_t(y_t) + sum_v pi_t(v)^2``; off
        policy times the token's squared importance weight.
    mask : ndarray of bool, shape (N, T)
        Tokens in the loss; entries outside may hold anything finite.
    groups : sequence of hashables, length N
        The group of each completion.
    without_own : bool
        Leave the completion itself out, so that the gradient is unbiased; verl keeps it in.
    past : tuple of two ndarray, shape (N, T), optional
        ``sum K W`` and ``sum K W G`` over the earlier completions of each row's prompt, from
        `kaestat.credit.token_history.TokenHistory.past`.

    Returns
    -------
    ndarray of float64, shape (N, T)
        0 outside the mask.

    Raises
    ------
    ValueError
        If shapes do not fit, a norm is negative, or a number is not finite.

    Examples
    --------
    >>> returns, mask = np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]), np.array([[True] * 3, [True, True, False]])
    >>> norms = np.array([[0.1, 0.1, 0.1], [0.3, 0.1, 0.0]])
    >>> optimal_token_baseline(returns, norms, mask, ["a", "a"]).round(3)
    array([[0.25 , 0.333, 0.   ],
           [0.25 , 0.333, 0.   ]])
    """
    weight, carried = token_sums(returns, norms, mask)
    if len(groups) != len(weight):
        raise ValueError(f"groups has {len(groups)} entries for {len(weight)} completions; give one each.")
    old_mass, old_carried = _checked_past(past, weight.shape)
    if weight.size == 0:
        return np.zeros_like(weight)
    code, present = _codes(groups), np.asarray(mask, dtype=bool)
    mass, total, count = (_sum_of_group(array, code) for array in (weight, carried, present.astype(np.float64)))
    if without_own:
        mass, total = mass - weight, total - carried
        left = mass > 1e-12 * (mass + weight)  # else it is what subtracting left of equal numbers
        mass, total = np.where(left, mass, 0.0), np.where(left, total, 0.0)
    known = (count > 1) | (old_mass > 0)
    mass, total = mass + old_mass, total + old_carried
    usable = (mass > 0) & known & present
    return np.where(usable, total / np.where(usable, mass, 1.0), 0.0)


def token_sums(returns: np.ndarray, norms: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a completion adds to the sums at each token, checked.

    Parameters
    ----------
    returns, norms, mask : ndarray, shape (N, T)
        As `kaestat.credit.token_baseline.optimal_token_baseline` takes them.

    Returns
    -------
    weight, carried : ndarray of float64, shape (N, T)
        ``W_it = sum_{j <= t} norms_ij`` and ``W_it G_it``; 0 outside the mask.

    Raises
    ------
    ValueError
        If shapes do not fit, a norm is negative, or a number is not finite.
    """
    returns, norms, present = (np.asarray(array, dtype=np.float64) for array in (returns, norms, mask))
    if returns.ndim != 2 or norms.shape != returns.shape or present.shape != returns.shape:
        raise ValueError(
            f"returns, norms and mask must have one shape (N, T), got {returns.shape}, {norms.shape}, {present.shape}."
        )
    if not (np.isfinite(returns).all() and np.isfinite(norms).all()):
        raise ValueError("returns and norms must be finite, inside the mask and outside.")
    if (norms * present < 0).any():
        raise ValueError("norms must not be negative: they are squared norms; clip what rounding left below 0.")
    weight = np.cumsum(norms * present, axis=1) * present
    return weight, weight * returns


def _checked_past(past: tuple[np.ndarray, np.ndarray] | None, shape: tuple[int, ...]) -> np.ndarray:
    """Both sums in one array, shape (2, N, T)."""
    if past is None:
        return np.zeros((2, *shape))
    mass, carried = (np.asarray(array, dtype=np.float64) for array in past)
    if mass.shape != shape or carried.shape != shape:
        raise ValueError(f"past must be two arrays of shape {shape}, got {mass.shape} and {carried.shape}.")
    if not (np.isfinite(mass).all() and np.isfinite(carried).all()) or (mass < 0).any():
        raise ValueError("past must be finite, and its mass not negative; take it from TokenHistory.past.")
    return np.stack([mass, carried])


def _codes(groups: Sequence[Hashable]) -> np.ndarray:
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(group, len(number)) for group in groups])


def _sum_of_group(array: np.ndarray, code: np.ndarray) -> np.ndarray:
    """Sum over the rows of a group, for each of its rows."""
    order = np.argsort(code, kind="stable")
    starts = np.flatnonzero(np.diff(code[order], prepend=-1))
    return np.add.reduceat(array[order], starts, axis=0)[code]
