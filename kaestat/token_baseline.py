"""A baseline for every token: the optimal token baseline, within the group.

All else here subtracts one value from every token of a completion. By causality the score of token t needs only the
rewards from t on, and its best baseline is one of its own. What verl calls the optimal token baseline weighs each
completion by the squared norm of its score up to that token. Values per token have no place in `AdvantageEstimator`:
this is a function on arrays, without a history.
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
) -> np.ndarray:
    """Weighted mean return of the group at each token.

    ``b_t = sum_i W_it G_it / sum_i W_it`` over the completions of the group that have a token t, with
    ``W_it = sum_{j <= t} norms_ij``. Where no other completion of the group has a token t it is 0, so that the
    advantage is the return itself. These are verl's numbers (``optimal_token_baseline`` of 0.9.1, with its
    ``handle_zero_tail``) where the tokens in the loss stand together at the front.

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
    returns, norms, present = (np.asarray(array, dtype=np.float64) for array in (returns, norms, mask))
    if returns.ndim != 2 or norms.shape != returns.shape or present.shape != returns.shape:
        raise ValueError(
            f"returns, norms and mask must have one shape (N, T), got {returns.shape}, {norms.shape}, {present.shape}."
        )
    if not (np.isfinite(returns).all() and np.isfinite(norms).all()):
        raise ValueError("returns and norms must be finite, inside the mask and outside.")
    if (norms * present < 0).any():
        raise ValueError("norms must not be negative: they are squared norms; clip what rounding left below 0.")
    if len(groups) != len(returns):
        raise ValueError(f"groups has {len(groups)} entries for {len(returns)} completions; give one each.")
    if returns.size == 0:
        return np.zeros_like(returns)
    code = _codes(groups)
    weight = np.cumsum(norms * present, axis=1) * present
    carried = weight * returns
    mass, total, count = (_sum_of_group(array, code) for array in (weight, carried, present))
    if without_own:
        mass, total = mass - weight, total - carried
        mass = np.where(mass > 1e-12 * (mass + weight), mass, 0.0)  # what subtracting left of equal numbers
    usable = (mass > 0) & (count > 1) & (present > 0)
    return np.where(usable, total / np.where(usable, mass, 1.0), 0.0)


def _codes(groups: Sequence[Hashable]) -> np.ndarray:
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(group, len(number)) for group in groups])


def _sum_of_group(array: np.ndarray, code: np.ndarray) -> np.ndarray:
    """Sum over the rows of a group, for each of its rows."""
    order = np.argsort(code, kind="stable")
    starts = np.flatnonzero(np.diff(code[order], prepend=-1))
    return np.add.reduceat(array[order], starts, axis=0)[code]
