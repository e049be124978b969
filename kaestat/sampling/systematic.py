"""Random integers with given expectations and an exact sum: systematic sampling in random order."""

from typing import Any

import numpy as np

from kaestat.core.checks import check_column


def systematic(expected: Any, rng: np.random.Generator) -> np.ndarray:
    """Random integers, each the floor or ceiling of its expectation, whose sum equals the sum of expectations.

    The expectations are laid end to end in random order. Points at distance 1, with a random start,
    are counted within each (Madow, 1949). A number below 1 is the probability of a 1.

    Parameters
    ----------
    expected : array-like of float, shape (P,)
        0 or more; their sum is a whole number (up to 1e-6).
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of int, shape (P,)

    Raises
    ------
    TypeError
        If expectations are not numbers.
    ValueError
        If an expectation is negative or not finite, or their sum is not a whole number.
    """
    expected = check_column("expected", expected, least=0)
    total = expected.sum()
    budget = round(total)
    if abs(total - budget) > 1e-6 * max(budget, 1):
        raise ValueError(f"expected must sum to a whole number, got {total:.6g}.")
    order = rng.permutation(len(expected))
    ends = expected[order]  # all in place from here: there may be a million prompts
    np.cumsum(ends, out=ends)
    if len(ends):
        ends *= budget / ends[-1] if ends[-1] > 0 else 1.0
        ends[-1] = budget
    ends += rng.random()
    np.floor(ends, out=ends)  # points at k - start up to each end
    ends[-1:] = budget  # the start is below 1
    ends[1:] -= ends[:-1]
    drawn = np.empty(len(expected), dtype=np.int64)
    drawn[order] = ends
    return drawn
