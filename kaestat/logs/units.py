"""A log as visits in blocks of steps, the arrays for its replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from kaestat.core.arrays import BLOCK_NUMBERS, Groups, Visits, visit_sums
from kaestat.history.fields import PLAIN_FIELDS

DISTINCT_VALUES = 4  # of rewards, up to which those of a visit are counted instead of listed


@dataclass(frozen=True, eq=False)
class LogUnits:
    """A log as visits of units (prompts, or their groups); a visit is one step at which the unit was sampled.

    Visits are numbered in the order of the log: by step, then unit. A step's visits therefore are contiguous.
    """

    reward: np.ndarray  # shape (N,); completions in the order of visits
    first: np.ndarray  # of int, shape (W,); position in ``reward`` of each visit's first completion
    counts: np.ndarray  # of int, shape (W,); completions of each visit
    visit_unit: np.ndarray  # of int, shape (W,); unit, prompt and step of each visit
    visit_prompt: np.ndarray
    visit_step: np.ndarray
    earlier: np.ndarray  # of int, shape (W,); number of earlier visits of the same unit
    by_unit: np.ndarray  # of int, shape (W,); visits sorted by unit, then time
    weight: np.ndarray | None = None  # shape (N,); weight of each completion; None means one
    # shape (N,); how many completions of the visit have this reward, if ``reward`` holds only distinct ones
    # (`condensed`); None means one
    times: np.ndarray | None = None

    @classmethod
    def of(cls, columns: Mapping[str, np.ndarray], unit: np.ndarray) -> LogUnits:
        """The visits of sorted columns, by unit code."""
        step, prompt = columns["step"], columns["prompt"]
        starts = np.ones(len(step), dtype=bool)
        starts[1:] = (step[1:] != step[:-1]) | (unit[1:] != unit[:-1])
        first = np.flatnonzero(starts)
        counts = np.diff(np.append(first, len(step)))
        visit_unit = unit[first].astype(np.int64)
        earlier, by_unit = _in_turn(visit_unit)
        return cls(
            reward=columns["reward"],
            first=first,
            counts=counts,
            visit_unit=visit_unit,
            visit_prompt=prompt[first].astype(np.int64),
            visit_step=step[first],
            earlier=earlier,
            by_unit=by_unit,
        )

    def weighted(self, weight: np.ndarray) -> LogUnits:
        """The same with a weight for each completion, shape (N,)."""
        return replace(self, weight=weight)

    @cached_property
    def condensed(self) -> LogUnits:
        """The same visits with equal rewards merged into one entry; unchanged if rewards have too many values.

        If all rewards of a visit are equal, its other entries repeat the reward, with 0 completions.
        """
        values = _few_values(self.reward, int(self.counts.max()) - 1)
        if values is None or self.weight is not None:
            return self
        times = np.stack([np.add.reduceat((self.reward == v).astype(np.float64), self.first) for v in values], axis=-1)
        absent = np.argsort(times == 0, axis=-1, kind="stable")  # occurring ones come first, in ascending order
        times = np.take_along_axis(times, absent, axis=-1)
        reward = values[absent]
        reward = np.where(times > 0, reward, reward[:, :1])
        first = np.arange(len(self.first)) * len(values)
        return replace(self, reward=reward.ravel(), first=first, times=times.ravel())

    @cached_property
    def entries(self) -> np.ndarray:
        """Number of entries of ``reward`` in each visit, shape (W,): its completions, unless `condensed`."""
        return self.counts if self.times is None else np.diff(np.append(self.first, len(self.reward)))

    @cached_property
    def weighted_sums(self) -> dict[str, np.ndarray]:
        """The weighted sums of `Visits` for each visit, by name, shape (W,); empty without weights."""
        if self.weight is None:
            return {}
        sums: dict[str, np.ndarray] = {}
        for size in np.unique(self.counts):  # visits of one size at a time: no padding
            visit = np.flatnonzero(self.counts == size)
            rows = self.first[visit, None] + np.arange(size)
            of_size = visit_sums(Groups(self.reward[rows], weight=self.weight[rows]))
            for name in of_size.keys() - set(PLAIN_FIELDS):
                sums.setdefault(name, np.empty(len(self.counts)))[visit] = of_size[name]
        return sums

    @cached_property
    def total(self) -> np.ndarray:
        """Sum of rewards of each visit, shape (W,)."""
        return np.add.reduceat(self._each(self.reward), self.first)

    @cached_property
    def total_sq(self) -> np.ndarray:
        """Sum of squared rewards of each visit, shape (W,)."""
        return np.add.reduceat(self._each(self.reward**2), self.first)

    def _each(self, column: np.ndarray) -> np.ndarray:
        return column if self.times is None else self.times * column

    @cached_property
    def variance(self) -> np.ndarray:
        """Unbiased variance within each visit, shape (W,); NaN for a lone completion."""
        deviation = self.reward - np.repeat(self.total / self.counts, self.counts)
        squares = np.add.reduceat(deviation**2, self.first)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.counts > 1, squares / (self.counts - 1), np.nan)

    def as_series(self) -> Visits:
        """All visits of all units, shape (U, V), with lags counted from one step after the end of the log."""

        def spread(column: np.ndarray) -> np.ndarray:
            series = np.zeros((self.visit_unit.max() + 1, self.earlier.max() + 1))
            series[self.visit_unit, self.earlier] = column
            return series

        weighted: dict[str, Any] = {name: spread(column) for name, column in self.weighted_sums.items()}
        return Visits(
            lag=spread(self.visit_step.max() + 1 - self.visit_step),
            count=spread(self.counts),
            total=spread(self.total),
            total_sq=spread(self.total_sq),
            **weighted,
        )

    @cached_property
    def _place(self) -> np.ndarray:
        """Where each visit stands in ``by_unit``."""
        place = np.empty_like(self.by_unit)
        place[self.by_unit] = np.arange(len(place))
        return place

    @cached_property
    def _in_time(self) -> dict[str, np.ndarray]:
        """Columns of `Visits` in the order of ``by_unit``, after a 0: a unit's visits stand together in memory."""
        columns = {"step": self.visit_step, "count": self.counts, "total": self.total, "total_sq": self.total_sq}
        columns |= self.weighted_sums
        return {name: np.append(0.0, column[self.by_unit]) for name, column in columns.items()}

    def reach(self, horizon: float) -> np.ndarray:
        """Number of earlier visits of the same unit within ``horizon`` steps of each visit, (W,)."""
        if horizon == np.inf:
            return self.earlier
        if horizon == 0:
            return np.zeros_like(self.earlier)
        unit, step = self.visit_unit[self.by_unit], self.visit_step[self.by_unit]
        start = unit * (int(self.visit_step.max()) + 1)  # keeps the keys of different units apart
        oldest = start + np.maximum(np.ceil(step - horizon), 0).astype(np.int64)
        number = np.empty_like(self.by_unit)
        number[self.by_unit] = np.arange(len(number)) - np.searchsorted(
            start + step, oldest
        )  # sorted: ten times as fast
        return number

    def blocks(self, *, horizon: float, max_visits: float = np.inf, max_cells: int = BLOCK_NUMBERS) -> Iterator[Block]:
        """The log in blocks of whole steps, each as the arrays that baselines read.

        A past visit is at most ``horizon`` steps old (0 leaves the whole past out), and among the newest
        ``max_visits``. ``max_cells`` bounds steps x units x (visits or completions) of a block, for the processor's
        cache; a single step may exceed it.
        """
        reach = self.reach(horizon)
        if max_visits < np.inf:
            reach = np.minimum(reach, int(max_visits))
        edges = np.flatnonzero(np.diff(self.visit_step, prepend=-1))  # first of each step
        ends = np.append(edges[1:], len(self.visit_step))
        widths = (ends - edges).tolist()
        depths = np.maximum(np.maximum.reduceat(reach, edges), np.maximum.reduceat(self.entries, edges)).tolist()
        start = 0
        while start < len(edges):
            stop, width, depth = start + 1, widths[start], depths[start]
            while stop < len(edges):
                width, depth = max(width, widths[stop]), max(depth, depths[stop])
                if (stop + 1 - start) * width * depth > max_cells:
                    break
                stop += 1
            yield self._block(np.arange(edges[start], ends[stop - 1]), edges[start:stop] - edges[start], reach)
            start = stop

    def _block(self, visits: np.ndarray, edges: np.ndarray, reach: np.ndarray) -> Block:
        widths = np.diff(np.append(edges, len(visits)))
        row, column = np.repeat(np.arange(len(edges)), widths), np.arange(len(visits)) - np.repeat(edges, widths)
        where = np.full((len(edges), int(widths.max())), -1, dtype=np.int64)
        where[row, column] = visits
        entries = np.where(where < 0, 0, self.entries[where])
        places = np.arange(entries.max())
        mask = places < entries[..., None]
        rows = np.where(mask, self.first[where][..., None] + places, 0)
        reward = np.where(mask, self.reward[rows], 0.0)
        weight, times = (None if a is None else np.where(mask, a[rows], 0.0) for a in (self.weight, self.times))
        full = times is not None or mask.all()
        steps = self.visit_step[visits[edges]][:, None, None]
        return Block(
            visit=where,
            step=steps,
            groups=Groups(reward=reward, mask=None if full else mask, weight=weight, times=times),
            visits=self._past(where, steps, reach),
        )

    def _past(self, where: np.ndarray, steps: np.ndarray, reach: np.ndarray) -> Visits:
        """The latest earlier visits of each unit in ``where``, (T, P, V), on the right as in `RewardHistory`."""
        reach = np.where(where < 0, 0, reach[where])[..., None]
        depth = int(reach.max())
        back = np.arange(depth, 0, -1)  # 1 is the visit just before
        past = back <= reach
        place = np.where(past, self._place[where][..., None] + (1 - back), 0)  # 0 holds the zeros of the padding
        columns = {name: column.take(place) for name, column in self._in_time.items()}
        lag = np.where(past, steps - columns.pop("step"), 0.0)
        return Visits(lag=lag, **columns)


def _in_turn(visit_unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number of earlier visits of the same unit, and the visits sorted by unit, then time; both (W,)."""
    by_unit, visits_of = np.argsort(visit_unit, kind="stable"), np.bincount(visit_unit)
    earlier = np.empty_like(by_unit)
    earlier[by_unit] = np.arange(len(by_unit)) - np.repeat(np.cumsum(visits_of) - visits_of, visits_of)
    return earlier, by_unit


def _few_values(reward: np.ndarray, most: int) -> np.ndarray | None:
    """The distinct values from the lowest on, or None where there are more than ``most``, or `DISTINCT_VALUES`."""
    values: list[float] = []
    rest = reward
    while len(rest):
        if len(values) == min(most, DISTINCT_VALUES):
            return None
        values.append(rest[0])
        rest = rest[rest != rest[0]]
    return np.sort(values)


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive steps of a log as arrays: T steps of at most P units."""

    visit: np.ndarray  # of int, shape (T, P); number of the visit in its `LogUnits`, -1 in the padding
    step: int | np.ndarray  # of int, shape (T, 1, 1)
    groups: Groups  # Rewards, shape (T, P, G)
    visits: Visits  # Past of each unit, shape (T, P, V)
