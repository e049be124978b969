"""What the results say about a claim: it holds, it does not hold, or the Monte Carlo error leaves it open.

A verdict on several numbers at once keeps the chance of any false one at `LEVEL` (Bonferroni).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"
LEVEL = 0.05


@dataclass(frozen=True)
class Finding:
    """A claim and what became of it.

    evidence: The numbers behind the verdict.
    source ({"paper", "ours"}): Whose claim it is.
    settles: Keys of the paper's claims that it speaks to, as in `paper_figures.report.claims`.
    """

    claim: str
    verdict: str
    evidence: str
    source: Literal["paper", "ours"] = "ours"
    settles: tuple[str, ...] = ()


def below(estimate: Sequence[float], mcse: Sequence[float], limit: float = 0.0) -> str:
    """Whether all of the numbers are below the limit, by normal intervals; one clearly above it refutes the claim."""
    estimate, margin = _with_margin(estimate, mcse)
    if np.any(estimate - margin > limit):
        return FAILS
    return HOLDS if np.all(estimate + margin < limit) else OPEN


def above(estimate: Sequence[float], mcse: Sequence[float], limit: float = 0.0) -> str:
    """Whether all of the numbers are above the limit."""
    return below(-np.asarray(estimate, dtype=float), mcse, -limit)


def equal(estimate: Sequence[float], mcse: Sequence[float], target: Sequence[float] | float) -> str:
    """Whether all of the numbers agree with their targets within Monte Carlo error."""
    estimate, margin = _with_margin(estimate, mcse)
    distance = np.abs(estimate - np.asarray(target, dtype=float))
    if np.any(distance > margin):
        return FAILS
    return HOLDS if np.all(distance <= margin) else OPEN


def together(*verdicts: str) -> str:
    """A verdict on things that must all hold: one that does not refutes them."""
    return FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS


def critical(tests: int) -> float:
    """Normal quantile for so many two-sided tests."""
    return NormalDist().inv_cdf(1 - LEVEL / (2 * tests))


def _with_margin(estimate: Sequence[float], mcse: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    estimate, mcse = (np.atleast_1d(np.asarray(part, dtype=float)) for part in (estimate, mcse))
    if not len(estimate):
        raise ValueError("estimate is empty: there is nothing to judge; give the summary of the study.")
    return estimate, critical(len(estimate)) * mcse
