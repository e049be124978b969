"""A whole training run's rewards, and the arrays that replay it."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from kaestat.arrays import Groups, Visits


class RewardLog:
    """Rewards of every completion of a run, with the prompt and step of each.

    Parameters
    ----------
    prompt : sequence of hashables, length N
        Prompt of each completion.
    step : sequence of int, length N
        Training step (or visit index) at which it was sampled, 0 or more.
    reward : sequence of float, length N
    group : sequence of hashables, length N, optional
        Group (stream) of the completion among those of the same prompt and step; None makes them one group.
    time_axis : {"step", "visit"}
        What ``step`` counts: training steps, or visits of each prompt in order where the steps are unknown.

    Attributes
    ----------
    prompts : list
        Distinct prompts, in order of first appearance.
    frame : pandas.DataFrame
        Columns ``prompt`` (code into ``prompts``), ``step``, ``reward`` and ``group`` (code, 0 without groups),
        sorted by step, then prompt, then group; the order of completions within a group is kept.

    Raises
    ------
    ValueError
        If lengths differ, the log is empty, a reward is not finite, a prompt is missing, or a step is negative or
        no whole number.

    Examples
    --------
    >>> log = RewardLog(["a", "a", "b", "b"], [0, 0, 0, 0], [1, 0, 1, 1])
    >>> log.n_visits
    2
    """

    def __init__(
        self,
        prompt: Sequence[Hashable],
        step: Sequence[int],
        reward: Sequence[float],
        group: Sequence[Hashable] | None = None,
        *,
        time_axis: Literal["step", "visit"] = "step",
    ):
        if time_axis not in ("step", "visit"):
            raise ValueError(f'time_axis must be "step" or "visit", got {time_axis!r}.')
        reward = _column("reward", reward, float)
        size = len(reward)
        if size == 0:
            raise ValueError("the log is empty: it holds no rewards.")
        step = _column("step", step, float)
        prompt, group = _labels("prompt", prompt), None if group is None else _labels("group", group)
        for name, column in (("prompt", prompt), ("step", step), ("group", group)):
            if column is not None and len(column) != size:
                raise ValueError(f"{name} has {len(column)} entries for {size} rewards; give one per completion.")
        if not np.isfinite(reward).all():
            bad = int(np.argmax(~np.isfinite(reward)))
            raise ValueError(f"reward must be finite: entry {bad} is {reward[bad]}. Leave such completions out.")
        if not (np.isfinite(step).all() and (step >= 0).all() and (step == np.floor(step)).all()):
            bad = int(np.argmax(~(np.isfinite(step) & (step >= 0) & (step == np.floor(step)))))
            raise ValueError(f"step must be whole numbers from 0 on: entry {bad} is {step[bad]}.")
        codes, self.prompts = _factorize("prompt", prompt)
        frame = pd.DataFrame(
            {
                "prompt": codes,
                "step": step.astype(np.int64),
                "reward": reward,
                "group": 0 if group is None else _factorize("group", group)[0],
            }
        )
        order = np.lexsort((frame["group"], frame["prompt"], frame["step"]))
        self.frame = frame.iloc[order].reset_index(drop=True)
        self.time_axis = time_axis
        self.has_groups = group is not None

    def __repr__(self) -> str:
        return (
            f"RewardLog({len(self.frame)} completions, {len(self.prompts)} prompts, {self.n_visits} visits, "
            f"{self.n_steps} {self.time_axis}s)"
        )

    @classmethod
    def read(cls, path: str | os.PathLike, format: str = "auto", **hints: Any) -> RewardLog:
        """Read a log in one of the formats that people have; see `kaestat.readers.read`.

        Parameters
        ----------
        path : path
            A file, or a folder of files.
        format : str
            ``"auto"`` looks at the file; otherwise a name from `kaestat.readers.FORMATS`.
        **hints
            Column names, the group size, ...: what the format cannot tell.
        """
        from kaestat.readers import read

        return read(path, format=format, **hints)

    @property
    def n_steps(self) -> int:
        """Number of distinct steps."""
        return int(self.frame["step"].nunique())

    @property
    def n_visits(self) -> int:
        """Number of (prompt, step) pairs."""
        return len(self.prompt_units.visit_step)

    @property
    def group_sizes(self) -> np.ndarray:
        """Completions of each group, in the order of ``frame``."""
        return self.group_units.counts

    @cached_property
    def prompt_units(self) -> LogUnits:
        """Visits with a row for each prompt."""
        return LogUnits.of(self.frame, self.frame["prompt"].to_numpy())

    @cached_property
    def group_units(self) -> LogUnits:
        """Visits with a row for each (prompt, group); the same as `prompt_units` for a log without groups."""
        if not self.has_groups:
            return self.prompt_units
        pairs = self.frame["prompt"].to_numpy() * (self.frame["group"].max() + 1) + self.frame["group"].to_numpy()
        return LogUnits.of(self.frame, pd.factorize(pairs)[0])

    def units(self, unit: Literal["prompt", "group"]) -> LogUnits:
        """`prompt_units` or `group_units`."""
        return self.prompt_units if unit == "prompt" else self.group_units


@dataclass(frozen=True, eq=False)
class LogUnits:
    """A log cut into visits of units (prompts, or their groups); a visit is one step at which the unit was sampled.

    Visits are numbered in the order of the log: by step, then unit. A step's visits therefore are contiguous.

    Attributes
    ----------
    reward : ndarray, shape (N,)
        Completions in the order of visits.
    first : ndarray of int, shape (W,)
        Position in ``reward`` of each visit's first completion.
    counts : ndarray of int, shape (W,)
        Completions of each visit.
    visit_unit, visit_prompt, visit_step : ndarray of int, shape (W,)
        Unit, prompt and step of each visit.
    earlier : ndarray of int, shape (W,)
        Number of earlier visits of the same unit.
    series : ndarray of int, shape (U, V)
        Visits of each unit in order of time, -1 in the padding (on the right).
    """

    reward: np.ndarray
    first: np.ndarray
    counts: np.ndarray
    visit_unit: np.ndarray
    visit_prompt: np.ndarray
    visit_step: np.ndarray
    earlier: np.ndarray
    series: np.ndarray

    @classmethod
    def of(cls, frame: pd.DataFrame, unit: np.ndarray) -> LogUnits:
        """Cut a sorted frame by unit code."""
        step, prompt = frame["step"].to_numpy(), frame["prompt"].to_numpy()
        starts = np.ones(len(frame), dtype=bool)
        starts[1:] = (step[1:] != step[:-1]) | (unit[1:] != unit[:-1])
        first = np.flatnonzero(starts)
        counts = np.diff(np.append(first, len(frame)))
        visit_unit = unit[first]
        earlier = pd.Series(visit_unit).groupby(visit_unit).cumcount().to_numpy()
        series = np.full((visit_unit.max() + 1, earlier.max() + 1), -1, dtype=np.int64)
        series[visit_unit, earlier] = np.arange(len(first))
        return cls(
            reward=frame["reward"].to_numpy(),
            first=first,
            counts=counts,
            visit_unit=visit_unit,
            visit_prompt=prompt[first],
            visit_step=step[first],
            earlier=earlier,
            series=series,
        )

    @cached_property
    def total(self) -> np.ndarray:
        """Sum of rewards of each visit, shape (W,)."""
        return np.add.reduceat(self.reward, self.first)

    @cached_property
    def total_sq(self) -> np.ndarray:
        """Sum of squared rewards of each visit, shape (W,)."""
        return np.add.reduceat(self.reward**2, self.first)

    @cached_property
    def variance(self) -> np.ndarray:
        """Unbiased variance within each visit, shape (W,); NaN for a lone completion."""
        deviation = self.reward - np.repeat(self.total / self.counts, self.counts)
        squares = np.add.reduceat(deviation**2, self.first)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.counts > 1, squares / (self.counts - 1), np.nan)

    def as_series(self) -> Visits:
        """All visits of all units, shape (U, V), with lags counted from one step past the end of the log."""
        padding = self.series < 0

        def gather(column: np.ndarray) -> np.ndarray:
            return np.where(padding, 0.0, column[self.series])

        return Visits(
            lag=gather(float(self.visit_step.max() + 1) - self.visit_step),
            count=gather(self.counts.astype(float)),
            total=gather(self.total),
            total_sq=gather(self.total_sq),
        )

    def blocks(self, *, horizon: float, max_cells: int = 4_000_000) -> Iterator[Block]:
        """Cut the log into runs of whole steps, each as the arrays that baselines read.

        Parameters
        ----------
        horizon : float
            0 leaves the past out altogether.
        max_cells : int
            Bound on steps x prompts x (visits or completions) of a block, and so on memory; a single step may pass it.
        """
        edges = np.flatnonzero(np.diff(self.visit_step, prepend=-1))  # first visit of each step
        widths = np.diff(np.append(edges, len(self.visit_step)))
        depth = max(int(self.counts.max()), self.series.shape[1] if horizon > 0 else 1)
        start = 0
        while start < len(edges):
            stop, widest = start, 0
            while stop < len(edges):
                widest = max(widest, int(widths[stop]))
                if stop > start and (stop + 1 - start) * widest * depth > max_cells:
                    break
                stop += 1
            last = edges[stop] if stop < len(edges) else len(self.visit_step)
            yield self._block(np.arange(edges[start], last), edges[start:stop] - edges[start], horizon)
            start = stop

    def _block(self, visits: np.ndarray, edges: np.ndarray, horizon: float) -> Block:
        widths = np.diff(np.append(edges, len(visits)))
        row, column = np.repeat(np.arange(len(edges)), widths), np.arange(len(visits)) - np.repeat(edges, widths)
        shape = (len(edges), int(widths.max()))
        where = np.full(shape, -1, dtype=np.int64)
        where[row, column] = visits
        counts = np.where(where < 0, 0, self.counts[where])
        places = np.arange(counts.max())
        mask = places < counts[..., None]
        reward = np.where(mask, self.reward[np.where(mask, self.first[where][..., None] + places, 0)], 0.0)
        steps = self.visit_step[visits[edges]][:, None, None]
        return Block(
            visit=where,
            step=steps,
            groups=Groups(reward=reward, mask=None if mask.all() else mask),
            visits=self._past(where, steps, horizon),
        )

    def _past(self, where: np.ndarray, steps: np.ndarray, horizon: float) -> Visits:
        """Earlier visits of each unit in ``where``, none that is current or later; shape (T, P, V)."""
        if horizon == 0:
            none = np.zeros((*where.shape, 0))
            return Visits(lag=none, count=none, total=none, total_sq=none)
        unit = self.visit_unit[where]
        earlier = np.where(where < 0, 0, self.earlier[where])
        depth = int(earlier.max())
        series = self.series[unit, :depth]
        past = np.arange(depth) < earlier[..., None]
        if horizon < np.inf:
            past &= steps - self.visit_step[series] <= horizon
            reach = past.any(axis=(0, 1))
            kept = slice(int(np.argmax(reach)), None) if reach.any() else slice(depth, None)
            series, past = series[..., kept], past[..., kept]

        def gather(column: np.ndarray) -> np.ndarray:
            return np.where(past, column[series], 0)

        return Visits(
            lag=np.where(past, (steps - self.visit_step[series]).astype(float), 0.0),
            count=gather(self.counts.astype(float)),
            total=gather(self.total),
            total_sq=gather(self.total_sq),
        )


@dataclass(frozen=True, eq=False)
class Block:
    """Some consecutive steps of a log as arrays, T steps of at most P units.

    Attributes
    ----------
    visit : ndarray of int, shape (T, P)
        Number of the visit in its `LogUnits`, -1 in the padding.
    step : ndarray of int, shape (T, 1, 1)
    groups : Groups
        Rewards, shape (T, P, G).
    visits : Visits
        Past of each unit, shape (T, P, V).
    """

    visit: np.ndarray
    step: np.ndarray
    groups: Groups
    visits: Visits


def _column(name: str, values: Any, kind: type) -> np.ndarray:
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    try:
        column = np.asarray(values, dtype=kind)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers, one per completion ({error}).") from None
    if column.ndim != 1:
        raise ValueError(f"{name} must have one entry per completion, got shape {column.shape}.")
    return column


def _labels(name: str, values: Any) -> list:
    if isinstance(values, str | bytes):
        raise TypeError(f"{name} must be a sequence with one label per completion, got one {type(values).__name__}.")
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _factorize(name: str, labels: list) -> tuple[np.ndarray, list]:
    """Codes in order of first appearance, and the distinct labels."""
    try:
        distinct = list(dict.fromkeys(labels))
    except TypeError as error:
        raise TypeError(f"{name} must be hashable ({error}); turn lists into tuples.") from None
    if any(label is None or label != label for label in distinct):
        raise ValueError(f"{name}: None or NaN is no label; every completion needs its {name}.")
    number = {label: code for code, label in enumerate(distinct)}
    return np.fromiter(map(number.__getitem__, labels), dtype=np.int64, count=len(labels)), distinct
