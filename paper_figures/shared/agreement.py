"""Agreement of printed numbers with a model, judged over all cells together in units of their standard deviations.

Each printed number comes from one run of a diagnostic, so it scatters about its expectation. The simulation tells by
how much. With the residuals r_c of cell c and their covariance S_c, ``sum_c r_c' S_c^-1 r_c`` is chi-square
distributed if the model holds, with one degree of freedom less for each size that is fitted.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from paper_figures.shared.finding import FAILS, HOLDS, LEVEL


@dataclass(frozen=True)
class Fit:
    """A size fitted by likelihood, and the agreement of the numbers with the model at that size.

    size, low, high: Estimate, and the ends of the likelihood's 95 % interval; an end is infinite or 0 where the grid
        ends first.
    chi2, df: Of the agreement.
    """

    size: float
    low: float
    high: float
    chi2: float
    df: int

    @property
    def p(self) -> float:
        """Probability of a larger chi-square if the model holds."""
        return p_value(self.chi2, self.df)

    @property
    def verdict(self) -> str:
        """Whether the numbers agree, at `LEVEL`."""
        return HOLDS if self.p >= LEVEL else FAILS

    @property
    def agreement(self) -> str:
        """The test in words."""
        return f"chi-square {self.chi2:.1f} on {self.df} degrees of freedom, p = {self.p:.2g}"

    def __str__(self) -> str:
        end = f"{self.high:g}" if np.isfinite(self.high) else "any larger size"
        return f"{self.size:g} (95 % interval {self.low:g} to {end})"


def p_value(chi2: float, df: int) -> float:
    """Probability of a larger chi-square."""
    return float(stats.chi2.sf(chi2, df))


def losses(residual: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """``r' S^-1 r`` of each cell; infinite where a residual lies in a direction that does not vary.

    residual (ndarray, shape (..., C, K)): Of K numbers in each of C cells.
    covariance: ndarray, shape (C, K, K).
    Returns ndarray, shape (..., C).
    """
    variance, direction = np.linalg.eigh(covariance)
    squared = np.einsum("...ck,ckl->...cl", residual, direction) ** 2
    return np.divide(squared, variance, out=np.full(squared.shape, np.inf), where=variance > 0).sum(axis=-1)


def fit(loss: np.ndarray, sizes: np.ndarray, numbers: int) -> Fit:
    """The size with the least loss.

    loss (ndarray, shape (S,)): Sum of `losses` at each size.
    sizes (ndarray, shape (S,)): Rising.
    numbers: Printed numbers behind the loss.
    """
    best = int(np.argmin(loss))
    inside = np.flatnonzero(loss <= loss[best] + stats.chi2.ppf(1 - LEVEL, 1))
    low = float(sizes[inside[0]]) if inside[0] else 0.0
    high = float(sizes[inside[-1]]) if inside[-1] < len(sizes) - 1 else np.inf
    return Fit(float(sizes[best]), low, high, float(loss[best]), numbers - 1)
