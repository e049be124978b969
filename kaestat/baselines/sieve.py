"""Sieve least squares: a spline or polynomial in the step, fitted to the prompt's past."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kaestat.baselines.base import Baseline
from kaestat.baselines.kae import cold_start_value
from kaestat.core.arrays import Array, Groups, Namespace, Visits, ratio
from kaestat.core.checks import check_whole

MAX_VISITS = 1024


@dataclass(frozen=True)
class Sieve(Baseline):
    """Least-squares series estimator (Grenander, 1981), evaluated at the current step.

    Time runs from the prompt's first visit (0) to now (1). The past alone gives a prediction f with variance
    ``h sigma^2``; the rest of the current group, with mass m and mean z, updates it to
    ``(f + h m z) / (1 + h m)`` - the exact leave-one-out least-squares fit, by Sherman-Morrison.

    A prompt gets as many basis functions as it has distinct past visits, at most ``n_basis`` (one visit gives a
    constant). The number is also limited so that the visits determine the present value: after a long gap the last
    spline has no data. Without any past it is the leave-one-out mean of the group, or the mean of the other prompts.
    The fit may leave [0, 1]. Only the newest 1,024 visits of a prompt are fitted, to bound the cost of a step; time
    then starts at the first of these.

    Parameters
    ----------
    n_basis : int
        Dimension of the sieve, at least 1 (1 is the running mean).
    degree : int
        Degree of the B-splines; with few basis functions, one less than their number. Unused for the
        polynomial basis.
    basis : {"bspline", "polynomial"}
        Clamped B-splines on equal knots, or Legendre polynomials.
    """

    n_basis: int = 3
    degree: int = 1
    basis: Literal["bspline", "polynomial"] = "bspline"

    takes_weights: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_whole("n_basis", self.n_basis, most=20)
        check_whole("degree", self.degree, least=0)
        if not isinstance(self.basis, str) or self.basis not in ("bspline", "polynomial"):
            raise ValueError(f'basis must be "bspline" or "polynomial", got {self.basis!r}.')

    @property
    def max_visits(self) -> float:
        return MAX_VISITS

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        xp = groups.xp
        others_mass, others_carried = groups.others()
        value = ratio(others_carried, others_mass, cold_start_value(groups, "batch_mean"), xp)
        if visits.count.shape[-1] == 0:
            return value + xp.zeros_like(groups.reward)
        time, distinct = _elapsed(visits, xp)
        for size in range(1, self.n_basis + 1):
            prediction, variance, determined = self._predict(time, visits, size, xp)
            fitted = (prediction + variance * others_carried) / (1 + variance * others_mass)
            value = xp.where((distinct >= size) & determined, fitted, value)
        return value + xp.zeros_like(groups.reward)

    def effective_completions(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        xp = groups.xp
        found = xp.zeros_like(groups.reward[..., :1])
        if visits.count.shape[-1] == 0:
            return found
        time, distinct = _elapsed(visits, xp)
        for size in range(1, self.n_basis + 1):
            _, variance, determined = self._predict(time, visits, size, xp)
            found = xp.where((distinct >= size) & determined, ratio(xp.ones_like(variance), variance, 0.0, xp), found)
        return found

    def _predict(self, time: Array, visits: Visits, size: int, xp: Namespace) -> tuple[Array, Array, Array]:
        """Prediction at time 1 from the past, its relative variance h, whether the past fixes it; all (..., P, 1)."""
        design = self._design(time, size, xp)  # (..., P, V, k)
        now = self._design(xp.ones_like(time[..., :1]), size, xp)  # (..., P, 1, k)
        transposed = xp.matrix_transpose(design)
        gram = xp.matmul(transposed, visits.mass[..., None] * design)
        moment = xp.matmul(transposed, visits.carried[..., None])
        # Minimum-norm least squares: uneven visits can leave a spline without data.
        inverse = xp.linalg.pinv(gram)
        prediction = xp.matmul(now, xp.matmul(inverse, moment))
        variance = xp.matmul(now, xp.matmul(inverse, xp.matrix_transpose(now)))
        missed = xp.max(xp.abs(now - xp.matmul(now, xp.matmul(inverse, gram))), axis=-1)
        return prediction[..., 0], xp.clip(variance[..., 0], 0.0, None), missed < 1e-6

    def _design(self, time: Array, size: int, xp: Namespace) -> Array:
        if self.basis == "polynomial":
            return _legendre(time, size, xp)
        return _bsplines(time, size, min(self.degree, size - 1), xp)


def _elapsed(visits: Visits, xp: Namespace) -> tuple[Array, Array]:
    """Time of each visit, from the first (0) to now (1), shape (..., P, V); and how many visits, (..., P, 1)."""
    visited = xp.astype(visits.mass > 0, visits.lag.dtype)
    span = xp.max(visits.lag * visited, axis=-1, keepdims=True)
    time = xp.clip(1 - visits.lag / xp.where(span > 0, span, xp.ones_like(span)), 0.0, 1.0)
    return time, xp.sum(visited, axis=-1, keepdims=True)


def _legendre(time: Array, size: int, xp: Namespace) -> Array:
    """Legendre polynomials on [0, 1] by their three-term recursion; (..., size)."""
    x = 2 * time - 1
    columns = [xp.ones_like(x), x]
    for k in range(1, size - 1):
        columns.append(((2 * k + 1) * x * columns[-1] - k * columns[-2]) / (k + 1))
    return xp.stack(columns[:size], axis=-1)


def _bsplines(time: Array, size: int, degree: int, xp: Namespace) -> Array:
    """Clamped B-splines of equal knots on [0, 1] by the Cox-de Boor recursion; (..., size)."""
    pieces = size - degree
    knots = [0.0] * degree + [j / pieces for j in range(pieces + 1)] + [1.0] * degree
    last = degree + pieces - 1  # the last non-empty interval is closed on the right
    columns = [
        xp.astype((time >= knots[j]) & ((time < knots[j + 1]) | (j == last)), time.dtype) for j in range(len(knots) - 1)
    ]
    for k in range(1, degree + 1):
        columns = [
            _share(time - knots[j], knots[j + k] - knots[j]) * columns[j]
            + _share(knots[j + k + 1] - time, knots[j + k + 1] - knots[j + 1]) * columns[j + 1]
            for j in range(len(columns) - 1)
        ]
    return xp.stack(columns, axis=-1)


def _share(distance: Array, width: float) -> Array:
    return distance / width if width > 0 else 0.0 * distance
