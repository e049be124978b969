"""The state of a followed run: each new step updates it, and it gives the summary so far."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import DEFAULT_METHOD, SECOND_METHOD
from kaestat.core.visit_error import unbiased_error
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.risk import risk_baseline
from kaestat.watch.prompt_sums import PromptSums
from kaestat.watch.step_rows import StepRows
from kaestat.watch.steps_together import log_of, reach_of, served_together
from kaestat.watch.summary import Recent, RunSummary, method_figures

DEFAULT_METHODS = (DEFAULT_METHOD, SECOND_METHOD, "kae")
REFERENCES = ("reinforce++", "grpo")  # the last one is the reference for the others
RECENT_SHARE = 0.1  # of the steps so far, but at least
FEWEST_RECENT = 20


@dataclass(frozen=True, eq=False)
class _Method:
    name: str
    baseline: Baseline
    estimator: AdvantageEstimator


class RunMonitor:
    """Value errors, dead groups, reach and noise of a run, kept up to date step by step.

    Every method's estimator takes each step once, as in training, so an update costs as much as a training step
    of the estimator, and errors equal those of `kaestat.value_risk` on the whole log.

    Parameters
    ----------
    methods : sequence of str or Baseline
        As `kaestat.value_risk` takes them; ``reinforce++`` and ``grpo`` are added for comparison.

    Attributes
    ----------
    steps : dict of str to list
        For every complete step: ``step``, ``reward``, ``dead``, ``right``, ``returned``, ``reached``,
        ``effective_history``, and for each method ``error:NAME`` and ``noise:NAME``; NaN if a step has no such
        figure.

    Raises
    ------
    ValueError
        If a method is unknown, or needs input that a log does not have.

    Examples
    --------
    >>> from kaestat.datasets import simulated_run
    >>> monitor = RunMonitor(["kae:bandwidth=10"])
    >>> monitor.add(simulated_run(n_prompts=50, n_epochs=10).log)
    >>> monitor.finish()
    >>> summary = monitor.summary()
    >>> summary.n_steps, summary.methods[0].method
    (10, 'kae:bandwidth=10')
    """

    def __init__(self, methods: Sequence[str | Baseline] = DEFAULT_METHODS):
        named = {_name(method): method for method in (*methods, *REFERENCES)}
        named |= {name: named.pop(name) for name in REFERENCES}  # at the end
        self._methods = []
        for name, method in named.items():
            baseline = risk_baseline(method)
            self._methods.append(_Method(name, baseline, AdvantageEstimator(baseline)))
        self._looking = next((m for m in self._methods if m.baseline.horizon > 0), None)
        self._number: dict[Any, int] = {}
        self._stream: dict[Any, int] = {}
        self._visits = np.zeros(0, dtype=np.int64)
        self._errors, self._raw, self._noises = (PromptSums(len(self._methods)) for _ in range(3))
        self._open: list[StepRows] = []
        self._completions = self._late = 0
        self._highest = -math.inf
        self._told: list[str] = []
        self._measure = ""
        figures = ("step", "reward", "dead", "right", "returned", "reached", "effective_history")
        of_methods = (f"{what}:{m.name}" for what in ("error", "noise") for m in self._methods)
        self.steps: dict[str, list[float]] = {name: [] for name in (*figures, *of_methods)}

    @property
    def open_step(self) -> int | None:
        """The step that may still grow; None if there is none."""
        return self._open[0].step if self._open else None

    @property
    def last_step(self) -> int:
        """The newest complete step; -1 if there is none."""
        return int(self.steps["step"][-1]) if self.steps["step"] else -1

    def add(self, log: RewardLog, *, whole_steps: bool = False) -> None:
        """Add new completions; a step is complete once one of a later step arrives.

        Parameters
        ----------
        log : RewardLog
            New completions. Those of complete steps are counted as late, and left out.
        whole_steps : bool
            Whether the log's newest step is complete too.
        """
        done: list[StepRows] = []
        for rows in StepRows.of_log(log, self._number, self._stream):
            last = done[-1].step if done else self.last_step
            if rows.step <= last or (self._open and rows.step < self._open[0].step):
                self._late += len(rows.reward)
                continue
            if self._open and rows.step > self._open[0].step:
                done.append(self._closed())
            self._open.append(rows)
        if whole_steps and self._open:
            done.append(self._closed())
        self._take(done)

    def finish(self) -> None:
        """Mark the open step as complete."""
        self._take([self._closed()] if self._open else [])

    def _closed(self) -> StepRows:
        rows, self._open = StepRows.joined(self._open), []
        return rows

    def _take(self, steps: list[StepRows]) -> None:
        """Add complete steps: their values are computed for all together where they can be."""
        if not steps:
            return
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self._make_room()
            weights = []
            for rows in steps:
                weight, self._measure = _weights(rows, self._measure)
                weights.append(weight)
            ends = np.cumsum([0, *(len(rows.reward) for rows in steps)]).tolist()
            parts = [slice(*ends_of) for ends_of in itertools.pairwise(ends)]
            values, own = np.empty((2, len(self._methods), ends[-1]))
            reach, log = np.full((2, len(steps)), math.nan), log_of(steps)
            for at, method in enumerate(self._methods):
                looking = reach if method is self._looking else np.empty_like(reach)
                if log is not None and served_together(method.estimator, log, values[at], own[at], looking):
                    continue
                for number, (rows, part) in enumerate(zip(steps, parts, strict=True)):
                    values[at, part], own[at, part] = _served(method, rows, weights[number])
                    looking[:, number] = _reach(method)
            for number, (rows, part) in enumerate(zip(steps, parts, strict=True)):
                self._account(rows, weights[number], values[:, part], own[:, part], reach[:, number])
        self._told += [str(warning.message) for warning in caught]

    def _account(
        self, rows: StepRows, weight: np.ndarray | None, values: np.ndarray, own: np.ndarray, reach: np.ndarray
    ) -> None:
        """Add the figures of a step to those of the run."""
        visits = rows.visits()
        earlier = self._visits[visits.prompt]
        eligible = earlier > 0
        several = eligible & (visits.count > 1)
        squares = (rows.reward - values) ** 2
        loss, of_own = visits.mean(np.stack([squares, own]))
        raw = unbiased_error(loss, of_own, visits.variance, absolute=False)
        errors = unbiased_error(loss, of_own, visits.variance)
        noises = np.full_like(errors, np.nan) if weight is None else visits.mean(weight * squares)
        once = np.ones(len(visits.prompt))
        self._errors.add(visits.prompt[several], errors[:, several], once[several])
        self._raw.add(visits.prompt[eligible], raw[:, eligible], once[eligible])
        if weight is not None:
            self._noises.add(visits.prompt[eligible], noises[:, eligible], visits.count[eligible].astype(float))
        self._visits[visits.prompt] += 1
        self._completions += len(rows.reward)
        self._highest = max(self._highest, float(rows.reward.max()))
        self._note(rows, eligible, _means(errors, several), _means(noises, eligible), reach)

    def _make_room(self) -> None:
        """Let every prompt have its number of visits, in an array that at least doubles when it grows."""
        known, needed = len(self._visits), len(self._number)
        if needed > known:
            self._visits = np.pad(self._visits, (0, max(needed, 2 * known) - known))

    def _note(
        self, rows: StepRows, returned: np.ndarray, errors: np.ndarray, noises: np.ndarray, reach: np.ndarray
    ) -> None:
        """Add the step's own figures to those of all steps."""
        dead, right = rows.dead_groups(self._highest)
        figures = {
            "step": float(rows.step),
            "reward": float(rows.reward.mean()),
            "dead": dead,
            "right": right,
            "returned": float(returned.mean()),
            "reached": float(reach[0]),
            "effective_history": float(reach[1]),
        }
        for method, error, noise in zip(self._methods, errors.tolist(), noises.tolist(), strict=True):
            figures |= {f"error:{method.name}": error, f"noise:{method.name}": noise}
        for name, column in self.steps.items():
            column.append(figures[name])

    def summary(self) -> RunSummary:
        """The summary of all complete steps."""
        n_steps = len(self.steps["step"])
        recent = max(FEWEST_RECENT, math.ceil(RECENT_SHARE * n_steps))
        newest = {name: Recent.of(np.array(self.steps[name][-recent:])) for name in RECENT}
        errors = self._errors.means
        absolute = len(errors[1]) > 0
        errors = errors if absolute else self._raw.means
        names = [method.name for method in self._methods]
        return RunSummary(
            n_completions=self._completions,
            n_prompts=int((self._visits > 0).sum()),
            n_steps=n_steps,
            last_step=self.last_step,
            recent_steps=min(recent, n_steps),
            **newest,
            reach_of="" if self._looking is None else self._looking.name,
            absolute=absolute,
            measured_by=self._measure,
            reference=names[-1],
            methods=method_figures(names, errors, self._noises.means, absolute=absolute),
            late=self._late,
            told=tuple(dict.fromkeys(self._told)),
        )


RECENT = ("reward", "dead", "right", "returned", "reached")


def _name(method: str | Baseline) -> str:
    return method if isinstance(method, str) else type(method).__name__


def _weights(rows: StepRows, measure: str) -> tuple[np.ndarray | None, str]:
    """What the step's completions weigh, by the measure that the run began with; none where it lacks that."""
    found = measure or rows.measure
    return (rows.weights.get(found), found)


def _served(method: _Method, rows: StepRows, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | float]:
    """Values of the step's completions, and their derivatives in their own rewards."""
    estimator, baseline = method.estimator, method.baseline
    given = weight if baseline.needs_weights else None
    prompts: Any = rows.prompt  # arrays of whole numbers are the quickest ids
    streams: Any = rows.stream
    estimator.step(prompts, rows.reward, rows.step, stream_ids=streams, weights=given)
    record = estimator.record
    assert record is not None  # a step has completions
    own = record.baseline.own_derivative(record.groups, record.visits, step=record.step, carry=record.carry)
    if not isinstance(own, float):
        own = record.packing.unpack(np.broadcast_to(own, record.groups.reward.shape))
    return record.packing.unpack(record.values), own


def _reach(method: _Method) -> tuple[float, float]:
    """`reach_of` the step that the method's estimator has just served."""
    record = method.estimator.record
    assert record is not None
    visits, newest = record.visits, np.zeros(len(record.groups.reward))
    if visits.count.shape[-1]:
        newest = np.where(visits.count[:, -1] > 0, visits.lag[:, -1], 0.0)
    return reach_of(record.baseline, record.groups, visits, record.step, newest)


def _means(figures: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Mean over some visits, shape (M,); NaN where there are none."""
    return figures[:, counted].mean(axis=1) if counted.any() else np.full(len(figures), np.nan)
