"""The state of a followed run: each new step updates it, and it gives the summary so far."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.kae import KernelBaseline
from kaestat.baselines.registry import DEFAULT_METHOD, SECOND_METHOD
from kaestat.core.arrays import Visits
from kaestat.core.visit_error import unbiased_error
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.reach import effective_history, reached
from kaestat.estimator.record import StepRecord
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.risk import risk_baseline
from kaestat.watch.prompt_sums import PromptSums
from kaestat.watch.step_rows import StepRows
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

    def needs_rows_alone(self, rows: StepRows) -> bool:
        """Whether the values of a step depend on nothing but the rewards of its prompts: no estimator is needed."""
        return self._of_step_alone and (rows.stream is None or self.baseline.unit == "prompt")

    @cached_property
    def _of_step_alone(self) -> bool:
        baseline = self.baseline
        remembers = baseline.horizon > 0 or baseline.in_order_only or baseline.state_size > 0 or baseline.stepwise
        return not (remembers or baseline.needs_weights)


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
        for rows in StepRows.of_log(log, self._number, self._stream):
            if rows.step <= self.last_step or (self._open and rows.step < self._open[0].step):
                self._late += len(rows.reward)
                continue
            if self._open and rows.step > self._open[0].step:
                self.finish()
            self._open.append(rows)
        if whole_steps:
            self.finish()

    def finish(self) -> None:
        """Mark the open step as complete."""
        if self._open:
            rows, self._open = StepRows.joined(self._open), []
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self._take(rows)
            self._told += [str(warning.message) for warning in caught]

    def _take(self, rows: StepRows) -> None:
        visits = rows.visits()
        self._make_room()
        earlier = self._visits[visits.prompt]
        eligible = earlier > 0
        several = eligible & (visits.count > 1)
        weight, self._measure = _weights(rows, self._measure)
        values, own = np.empty((2, len(self._methods), len(rows.reward)))
        packed: StepRecord | None = None  # the step as an estimator has packed it
        for at, method in enumerate(self._methods):
            if packed is not None and method.needs_rows_alone(rows):
                values[at], own[at] = _of_step(method.baseline, packed)
            else:
                values[at], own[at] = _served(method, rows, weight)
                packed = packed or _prompts_alone(method.estimator.record)
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
        self._note(rows, eligible, _means(errors, several), _means(noises, eligible))

    def _make_room(self) -> None:
        """Let every prompt have its number of visits, in an array that at least doubles when it grows."""
        known, needed = len(self._visits), len(self._number)
        if needed > known:
            self._visits = np.pad(self._visits, (0, max(needed, 2 * known) - known))

    def _note(self, rows: StepRows, returned: np.ndarray, errors: np.ndarray, noises: np.ndarray) -> None:
        """Add the step's own figures to those of all steps."""
        dead, right = rows.dead_groups(self._highest)
        reach, history = (math.nan, math.nan) if self._looking is None else _reach(self._looking)
        figures = {
            "step": float(rows.step),
            "reward": float(rows.reward.mean()),
            "dead": dead,
            "right": right,
            "returned": float(returned.mean()),
            "reached": reach,
            "effective_history": history,
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
    return record.packing.unpack(record.values), _of_completions(record, own)


def _prompts_alone(record: StepRecord | None) -> StepRecord | None:
    """The record, if its rows are prompts and it has no weights."""
    return record if record and record.baseline.unit == "prompt" and record.groups.weight is None else None


def _of_step(baseline: Baseline, packed: StepRecord) -> tuple[np.ndarray | float, np.ndarray | float]:
    """As `_served`, of a baseline without a memory, for a step that another one's estimator has packed."""
    groups, visits = packed.groups, Visits.empty(packed.groups)
    values = baseline.values(groups, visits, step=packed.step)
    own = baseline.own_derivative(groups, visits, step=packed.step)
    return _of_completions(packed, values), _of_completions(packed, own)


def _of_completions(record: StepRecord, packed: Any) -> np.ndarray | float:
    """Figures that broadcast to the record's groups, for each completion; a number stays one."""
    if isinstance(packed, float):
        return packed
    return record.packing.unpack(np.broadcast_to(packed, record.groups.reward.shape))


def _reach(method: _Method) -> tuple[float, float]:
    """Share of the step's prompts with a past that still counts, and the mean number of completions it counts as."""
    record = method.estimator.record
    assert record is not None
    baseline = record.baseline
    history = effective_history(baseline, record) if isinstance(baseline, KernelBaseline) else math.nan
    if not record.visits.count.shape[-1]:
        return 0.0, history
    newest = record.visits.lag[:, -1]
    return float(((record.visits.count[:, -1] > 0) & reached(record.baseline, newest)).mean()), history


def _means(figures: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Mean over some visits, shape (M,); NaN where there are none."""
    return figures[:, counted].mean(axis=1) if counted.any() else np.full(len(figures), np.nan)
