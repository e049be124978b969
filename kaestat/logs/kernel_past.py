"""Kernel sums over the past of every visit of a log, updated from one visit to the next.

With lags ``l``, counts ``n`` and a gap ``g`` between two visits of a prompt, the exponential kernel's sums decay::

    sum w n  <-  d (sum w n + K(0) n_before),      d = K(g / b) / K(0)

and of the triangular kernel ``2 (1 - l / b)`` the sums ``N_k = sum n l^k`` over the visits within ``b`` steps move on
by the binomial formula, and lose the visits that leave the window. Either way a visit costs the same however many
there were before it. Whole numbers are summed exactly. Rewards of two values are therefore counted: where all other
prompts have equal rewards, the rounding of what enters and leaves a window would be their noise and drift.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import cast

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.kae import KernelBaseline
from kaestat.core.arrays import KernelSums
from kaestat.logs.units import LogUnits
from kaestat.smoothing.kernels import LEAST_WEIGHT, Exponential, Triangular
from kaestat.smoothing.selectors import Fixed
from kaestat.smoothing.selectors.settled import Settled

NAMES = tuple(field.name for field in fields(KernelSums))


def summed_past(baseline: KernelBaseline, units: LogUnits) -> np.ndarray | None:
    """`KernelSums` of every visit, shape (8, B, W), in the order of its fields, at each of the baseline's bandwidths.

    None if the baseline needs more of the past, its bandwidth is learned, or completions have weights.
    """
    if not sums_suffice(baseline, units):
        return None
    kernel, selector = baseline.weighting, baseline.selector
    given = selector.steps if isinstance(selector, Fixed) else cast(Settled, selector).resolved[0][0]
    bandwidths = np.ravel(np.asarray(given, dtype=float))
    key = kernel, tuple(bandwidths)
    if key not in units.newest_sums:  # other methods at the same bandwidths come next (`scoring.batches`)
        units.newest_sums.clear()
        exponential = isinstance(kernel, Exponential)
        running = _Exponential(bandwidths, kernel.at_zero) if exponential else _Triangular(bandwidths)
        units.newest_sums[key] = _by_number(units, running)
    return units.newest_sums[key]


def sums_suffice(baseline: Baseline, units: LogUnits) -> bool:
    """Whether a baseline's values follow from sums over the past at bandwidths that are known beforehand."""
    if not isinstance(baseline, KernelBaseline) or not baseline.kernel_sums_suffice or units.weight is not None:
        return False
    selector = baseline.selector
    known = isinstance(selector, Fixed) or (isinstance(selector, Settled) and len(selector.resolved) == 1)
    return known and isinstance(baseline.weighting, Exponential | Triangular)


def sums_at(summed: np.ndarray, visit: np.ndarray) -> KernelSums:
    """The sums at some visits, (T, P), -1 for padding; shape (B, T, P, 1), without the first axis for B = 1."""
    if (visit >= 0).all():  # they follow one another
        here = summed[..., visit[0, 0] : visit[-1, -1] + 1].reshape(*summed.shape[:2], *visit.shape)
    else:
        here = np.where(visit >= 0, summed[..., visit], 0.0)
    found = here[..., None]
    return KernelSums(**{name: found[k] if found.shape[1] > 1 else found[k, 0] for k, name in enumerate(NAMES)})


def _by_number(units: LogUnits, kernel: _Exponential | _Triangular) -> np.ndarray:
    """Run through the visits by their number among those of the unit: the first of all, the second of all, ..."""
    order = units.by_number
    start = np.concatenate([[0], np.cumsum(np.bincount(units.earlier))])
    read = (units.visit_step, units.counts, units.total, units.total_sq)
    columns = np.array([column[order] for column in read], dtype=float)
    low, span = units.lower_and_span
    if counted := (low, span) != (0.0, 1.0):
        columns[2:] = np.rint((columns[2] - low * columns[1]) / span)  # how many rewards are the higher one
    found = np.zeros((len(NAMES), len(kernel.bandwidths), len(order)))
    for number, sums in enumerate(kernel.run(columns, start), 1):
        visit = order[start[number] : start[number + 1]]
        for row, sum_ in zip(found, sums, strict=True):
            for of_log, of_number in zip(row, sum_, strict=True):  # faster than all bandwidths at once
                of_log[visit] = of_number
    if counted:
        of = dict(zip(NAMES, found, strict=True))
        of["carried_sq"][...] = low**2 * of["mass"] + (2 * low + span) * span * of["carried"]
        of["carried"][...] = low * of["mass"] + span * of["carried"]
        of["carried_lag"][...] = low * of["mass_lag"] + span * of["carried_lag"]
    return found


class _Exponential:
    def __init__(self, bandwidths: np.ndarray, at_zero: float):
        self.bandwidths, self.at_zero = bandwidths[:, None], at_zero

    def run(self, columns: np.ndarray, start: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
        """`KernelSums` of each unit's second visit, third visit, ..., (B, U) each."""
        first = (len(self.bandwidths), int(start[1]))
        mass, lag, lag_sq, carried, carried_lag, carried_sq, count_sq, visits = np.zeros((8, *first))
        for number in range(1, len(start) - 1):
            size = int(start[number + 1] - start[number])
            now, before = (columns[:, at : at + size] for at in start[[number, number - 1]])
            gap, (count, total, total_sq) = now[0] - before[0], before[1:]
            decay = np.exp(-self.at_zero / self.bandwidths * gap)
            decay = np.where(self.at_zero * decay >= LEAST_WEIGHT, decay, 0.0)  # as the kernel has it
            mass, lag, lag_sq, carried, carried_lag, carried_sq, count_sq, visits = (
                sum_[:, :size] for sum_ in (mass, lag, lag_sq, carried, carried_lag, carried_sq, count_sq, visits)
            )
            mass, carried = mass + self.at_zero * count, carried + self.at_zero * total
            lag_sq = decay * (lag_sq + gap * (2 * lag + gap * mass))
            lag, carried_lag = decay * (lag + gap * mass), decay * (carried_lag + gap * carried)
            mass, carried = decay * mass, decay * carried
            carried_sq = decay * (carried_sq + self.at_zero * total_sq)
            count_sq = decay**2 * (count_sq + self.at_zero**2 * count)
            visits = np.where(decay > 0, visits + 1, 0.0)
            yield mass, carried, carried_sq, count_sq, lag, lag_sq, carried_lag, visits


class _Triangular:
    def __init__(self, bandwidths: np.ndarray):
        self.bandwidths = bandwidths[:, None]

    def run(self, columns: np.ndarray, start: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
        """As of `_Exponential`."""
        first = (len(self.bandwidths), int(start[1]))
        moments = np.zeros((9, *first))  # sum n l^k for k = 0..3, sum Z l^k for k = 0..2, sum Z^2 l^k for k = 0, 1
        oldest = np.zeros(first, dtype=np.int64)  # number of the oldest visit within the window
        over, earliest = 1 / self.bandwidths, columns[0, : start[1]].min()
        for number in range(1, len(start) - 1):
            size = int(start[number + 1] - start[number])
            now, before = (columns[:, at : at + size] for at in start[[number, number - 1]])
            gap, (count, total, total_sq) = now[0] - before[0], before[1:]
            moments, oldest = moments[..., :size], oldest[:, :size]
            n0, n1, n2, n3, s0, s1, s2, q0, q1 = moments
            n0 += count
            s0 += total
            q0 += total_sq
            n3 += gap * (3 * n2 + gap * (3 * n1 + gap * n0))
            n2 += gap * (2 * n1 + gap * n0)
            n1 += gap * n0
            s2 += gap * (2 * s1 + gap * s0)
            s1 += gap * s0
            q1 += gap * q0
            for row in np.flatnonzero(self.bandwidths <= now[0].max() - earliest).tolist():
                _leave(moments[:, row], oldest[row], columns, start, number, now[0], self.bandwidths[row, 0])
            yield (
                2 * (n0 - over * n1),
                2 * (s0 - over * s1),
                2 * (q0 - over * q1),
                4 * (n0 - over * (2 * n1 - over * n2)),
                2 * (n1 - over * n2),
                2 * (n2 - over * n3),
                2 * (s1 - over * s2),
                (number - oldest).astype(float),
            )


def _leave(
    moments: np.ndarray,
    oldest: np.ndarray,
    columns: np.ndarray,
    start: np.ndarray,
    number: int,
    now: np.ndarray,
    bandwidth: float,
) -> None:
    """Take out visits as old as the bandwidth, one of each unit in a turn; the sums of an empty window are 0."""
    lag = now - columns[0, start[oldest] + np.arange(len(now))]
    unit = np.flatnonzero(lag >= bandwidth)
    while len(unit):
        at = start[oldest[unit]] + unit
        lag = now[unit] - columns[0, at]
        count, total, total_sq = columns[1:, at]
        n1, s1 = count * lag, total * lag
        left = (count, n1, n1 * lag, n1 * lag**2, total, s1, s1 * lag, total_sq, total_sq * lag)
        every = unit if len(unit) < len(now) else slice(None)
        for moment, part in zip(moments, left, strict=True):
            moment[every] -= part
        oldest[every] += 1
        empty = oldest[unit] == number
        moments[:, unit[empty]] = 0.0
        unit = unit[~empty]
        unit = unit[now[unit] - columns[0, start[oldest[unit]] + unit] >= bandwidth]
