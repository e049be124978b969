"""Numbers of completions with an exact sum: expected ones between bounds, and random ones that match them."""

import numpy as np
from scipy.optimize import brentq

from kaestat.core.checks import check_column


def allocate(
    score: np.ndarray, budget: float, *, share: np.ndarray, floor: float, most: float, amount: str = "completions"
) -> np.ndarray:
    """Expected numbers ``nu = clip(c score, floor B share, most)`` of each prompt, with ``sum nu = B``.

    For ``score = share sqrt(m / c)`` this is the allocation of least variance at its cost, between the bounds (Neyman,
    1934, for strata; here a convex problem, whose solution clips).

    Parameters
    ----------
    score : ndarray, shape (P,)
        Wanted amount for each prompt, up to a factor. If all are 0, ``share`` is used instead.
    budget : float
        B, positive; what it counts is the ``amount``, for messages.
    share : ndarray, shape (P,)
        The prompts' weights pi in the objective, which sum to 1.
    floor : float
        Smallest part of its share that a prompt gets, in [0, 1).
    most : float
        Largest amount for one prompt.

    Raises
    ------
    ValueError
        If scores are not numbers of 0 or more, one per prompt; or if the budget or the floor exceeds ``most`` each.

    Examples
    --------
    >>> allocate(np.array([3.0, 1.0, 0.0]), 8, share=np.full(3, 1 / 3), floor=0.375, most=np.inf).tolist()
    [5.25, 1.75, 1.0]
    """
    score = check_column("score", score, len(share), least=0)
    if not most * len(score) >= budget * (1 - 1e-12):
        raise ValueError(
            f"budget: {budget:g} {amount} are more than {len(score)} prompts can take at {most:g} each; lower it, or "
            "raise the limit."
        )
    least = floor * budget * share
    if (largest := float(least.max())) > most:
        raise ValueError(
            f"floor={floor:g} gives a prompt of share {share.max():.3g} {largest:.3g} {amount}, more than the limit of "
            f"{most:g}: lower the floor to {np.floor(1000 * floor * most / largest) / 1000:g}, or the budget."
        )
    score = score if (score > 0).any() else share
    return _water_filling(score / score.max(), budget, least, most)


def systematic(expected: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Random integers, each the floor or ceiling of its expectation, whose sum equals the (whole) sum of expectations.

    The expectations are laid end to end in random order. Points at distance 1, with a random start, are counted within
    each (Madow, 1949). A number below 1 is the probability of a 1.
    """
    budget = round(expected.sum())
    order = rng.permutation(len(expected))
    ends = np.cumsum(expected[order])
    ends = np.floor(np.append(ends[:-1] * (budget / ends[-1]) + rng.random(), budget))  # points up to each end
    drawn = np.empty(len(expected), dtype=np.int64)
    drawn[order] = np.diff(ends, prepend=0.0)
    return drawn


def _water_filling(score: np.ndarray, budget: float, least: np.ndarray, most: float) -> np.ndarray:
    """``clip(c score, least, most)`` of sum ``budget``."""
    scored = score > 0
    rest = budget - np.where(scored, most, least).sum()
    if rest > -1e-12 * budget:  # prompts of score 0 must take the rest, in proportion to their room
        room = np.where(scored, 0.0, most - least)
        return np.where(scored, most, least) + max(rest, 0.0) * room / max(room.sum(), 1e-300)
    low, high = 0.0, 1.0  # scores are 1 at most
    while np.clip(high * score, least, most).sum() < budget:
        low, high = high, 2 * high
    factor = brentq(lambda c: np.clip(c * score, least, most).sum() - budget, low, high, xtol=1e-300, rtol=1e-13)
    return np.clip(factor * score, least, most)
