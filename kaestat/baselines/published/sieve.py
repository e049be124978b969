"""Sieve least squares: a spline in the step, fitted to the prompt's past."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from kaestat.baselines.base import Baseline
from kaestat.baselines.kernel_mean import cold_start_value
from kaestat.core.arrays import Array, Groups, Visits, namespace, ratio
from kaestat.core.checks import check_whole


@dataclass(frozen=True)
class Sieve(Baseline):
    """Least-squares series estimator (Grenander, 1981) of B-splines on equal knots, evaluated at the current step.

    Time runs from the prompt's first visit (0) to now (1). The past alone gives a prediction f with variance
    ``h sigma^2``; the rest of the current group, with mass m and mean z, updates it to
    ``(f + h m z) / (1 + h m)`` - the exact leave-one-out least-squares fit, by Sherman-Morrison.

    A prompt gets as many basis functions as its distinct visits determine, at most ``n_basis``: after a long gap the
    last spline has no data. Without any past it is the leave-one-out mean of the group, or the mean of the other
    prompts.

    Parameters
    ----------
    n_basis : int
        Dimension of the sieve, at least 1 (1 is the running mean).
    degree : int
        Degree of the B-splines; with few basis functions, one less than their number.
    """

    n_basis: int = 3
    degree: int = 1

    takes_weights: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_whole("n_basis", self.n_basis, most=20)
        check_whole("degree", self.degree, least=0)

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        xp, (others_mass, others_carried) = groups.xp, groups.others()
        value = ratio(others_carried, others_mass, cold_start_value(groups, "batch_mean"), xp)
        for prediction, variance, determined in self._predictions(visits):
            fitted = (prediction + variance * others_carried) / (1 + variance * others_mass)
            value = xp.where(determined, fitted, value)
        return value + xp.zeros_like(groups.reward)

    def effective_completions(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        size = groups.xp.zeros_like(groups.reward[..., :1])
        for _, variance, determined in self._predictions(visits):
            size = groups.xp.where(determined, ratio(groups.xp.ones_like(variance), variance, 0.0, groups.xp), size)
        return size

    def _predictions(self, visits: Visits) -> Iterator[tuple[Array, Array, Array]]:
        """For each number of splines: prediction, its relative variance h, whether the past fixes it; (..., P, 1)."""
        if visits.count.shape[-1] == 0:
            return
        xp = namespace(visits.lag)
        visited = xp.astype(visits.mass > 0, visits.lag.dtype)
        span = xp.max(visits.lag * visited, axis=-1, keepdims=True)
        time = xp.clip(1 - visits.lag / xp.where(span > 0, span, xp.ones_like(span)), 0.0, 1.0)
        distinct = xp.sum(visited, axis=-1, keepdims=True)
        for size in range(1, self.n_basis + 1):
            degree = min(self.degree, size - 1)
            design = _splines(time, size, degree)  # (..., P, V, k)
            now = _splines(xp.ones_like(time[..., :1]), size, degree)  # (..., P, 1, k)
            transposed = xp.matrix_transpose(design)
            gram = xp.matmul(transposed, visits.mass[..., None] * design)
            # Minimum-norm least squares: uneven visits can leave a spline without data.
            weights = xp.matmul(now, xp.linalg.pinv(gram))
            prediction = xp.matmul(weights, xp.matmul(transposed, visits.carried[..., None]))[..., 0]
            variance = xp.clip(xp.matmul(weights, xp.matrix_transpose(now))[..., 0], 0.0, None)
            missed = xp.max(xp.abs(now - xp.matmul(weights, gram)), axis=-1)
            yield prediction, variance, (distinct >= size) & (missed < 1e-6)


def _splines(time: Array, size: int, degree: int) -> Array:
    """Clamped B-splines of equal knots on [0, 1] by the Cox-de Boor recursion; (..., size)."""
    xp, pieces = namespace(time), size - degree
    knots = [0.0] * degree + [j / pieces for j in range(pieces + 1)] + [1.0] * degree
    last = degree + pieces - 1  # the last non-empty interval is closed on the right
    columns = [
        xp.astype((time >= knots[j]) & ((time < knots[j + 1]) | (j == last)), time.dtype) for j in range(len(knots) - 1)
    ]

    def share(distance: Array, width: float) -> Array:
        return distance / width if width > 0 else 0.0 * distance

    for k in range(1, degree + 1):
        columns = [
            share(time - knots[j], knots[j + k] - knots[j]) * columns[j]
            + share(knots[j + k + 1] - time, knots[j + k + 1] - knots[j + 1]) * columns[j + 1]
            for j in range(len(columns) - 1)
        ]
    return xp.stack(columns, axis=-1)
