"""The state of a followed run: each new step updates it, and it gives the summary so far."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.core.visit_error import unbiased_error
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.logs.reward_log import RewardLog, as_log
from kaestat.logs.reward_range import range_so_far
from kaestat.logs.risk import listed, risk_baseline
from kaestat.watch.prompt_sums import PromptSums
from kaestat.watch.step_rows import StepRows
from kaestat.watch.steps_together import log_of, reach_of, served_together
from kaestat.watch.summary import Recent, RunSummary, method_figures

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_METHODS = ("bayes_filter", DEFAULT_METHOD, "kae")
REFERENCES = ("reinforce++", "grpo")  # the last one is the reference for the others
RECENT_SHARE = 0.1  # of the steps so far, but at least
FEWEST_RECENT = 20


class RunMonitor:
    """Value errors, dead groups, reach and noise of a run, kept up to date step by step.

    Every method's estimator takes each step once, as in training, so an update costs as much as a training step
    of the estimator, and errors equal those of `kaestat.value_risk` on the whole log, if the first step shows the
    range of rewards. A range that widens later holds from that step on, and `RunSummary.told` says so; you can name it,
    as in ``"kalman:low=-1,high=1"``. A method that refuses a reward is left out: its figures are NaN, and ``told`` says
    why. Steps that wait are served together, in less time; values differ by rounding.

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
        named: dict[str, str | Baseline] = {}
        for method in (*listed(methods), *REFERENCES):
            name = method if isinstance(method, str) else type(method).__name__
            named[name if named.get(name, method) == method else repr(method)] = method
        named |= {name: named.pop(name) for name in REFERENCES}  # at the end
        self._given = {name: risk_baseline(method) for name, method in named.items()}
        self._methods = {name: AdvantageEstimator(baseline) for name, baseline in self._given.items()}
        self._looking = next((name for name, method in self._methods.items() if method.baseline.horizon > 0), "")
        self._number: dict[Any, int] = {}
        self._stream: dict[Any, int] = {}
        self._visits = np.zeros(0, dtype=np.int64)
        self._errors, self._raw, self._noises = (PromptSums(len(self._methods)) for _ in range(3))
        self._open: list[StepRows] = []
        self._completions = self._late = 0
        self._lowest, self._highest = math.inf, -math.inf
        self._told: list[str] = []
        self._refused: list[str] = []
        self._widened = ""
        self._measure = ""
        figures = ("step", "reward", "dead", "right", "returned", "reached", "effective_history")
        of_methods = (f"{what}:{name}" for what in ("error", "noise") for name in self._methods)
        self.steps: dict[str, list[float]] = {name: [] for name in (*figures, *of_methods)}

    @property
    def open_step(self) -> int | None:
        """The step that may still grow; None if there is none."""
        return self._open[0].step if self._open else None

    @property
    def last_step(self) -> int:
        """The newest complete step; -1 if there is none."""
        return int(self.steps["step"][-1]) if self.steps["step"] else -1

    def add(self, log: RewardLog | pd.DataFrame, *, whole_steps: bool = False) -> None:
        """Add new completions; a step is complete once one of a later step arrives.

        Parameters
        ----------
        log : RewardLog or DataFrame
            New completions. Those of complete steps are counted as late, and left out.
        whole_steps : bool
            Whether the log's newest step is complete too.
        """
        done: list[StepRows] = []
        for rows in StepRows.of_log(as_log(log), self._number, self._stream):
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
        """Add complete steps; each method takes those with one range of rewards together, where it is possible."""
        self._make_room()
        self._measure = self._measure or next((name for rows in steps for name in rows.weights), "")
        lowest = itertools.accumulate((rows.reward.min() for rows in steps), min, initial=self._lowest)
        highest = itertools.accumulate((rows.reward.max() for rows in steps), max, initial=self._highest)
        ranges = [range_so_far(float(low), float(high)) for low, high in zip(lowest, highest, strict=True)][1:]
        for (low, high), part in itertools.groupby(zip(ranges, steps, strict=True), lambda pair: pair[0]):
            together = [rows for _, rows in part]
            self._learn_range(low, high, together[0].step)
            self._take_together(together)

    def _learn_range(self, low: float, high: float, step: int) -> None:
        """Give the range of rewards, from that step on, to methods that were given none and do not widen their own."""
        widened = []
        for name, method in self._methods.items():
            state, baseline = method.held.state, self._given[name].on_range(low, high)
            begun = state.last_step >= 0
            if baseline == method.baseline or (begun and state.carry is not None):
                continue
            self._methods[name] = AdvantageEstimator(baseline)
            if begun:
                widened.append(name)
                self._methods[name].cell.put(self._methods[name].held._replace(state=state))
        if widened:
            self._widened = (
                f"{', '.join(widened)}: rewards reach from {low:g} to {high:g} since step {step:,}, and values of "
                f"earlier steps are for a narrower range. Name the range (low={low:g}, high={high:g}), or use kaestat "
                "analyze, which knows it."
            )

    def _take_together(self, steps: list[StepRows]) -> None:
        ends = [0, *itertools.accumulate(len(rows.reward) for rows in steps)]
        each = list(zip(steps, (slice(*pair) for pair in itertools.pairwise(ends)), strict=True))
        values, own = np.full((2, len(self._methods), ends[-1]), math.nan)
        reach, log = np.full((2, len(steps)), math.nan), log_of(steps)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for at, (name, method) in enumerate(self._methods.items()):
                looking = reach if name == self._looking else np.empty_like(reach)
                if name in self._refused or (
                    log is not None and served_together(method, log, values[at], own[at], looking)
                ):
                    continue
                values[at] = own[at] = looking[:] = math.nan
                for number, (rows, part) in enumerate(each):
                    weight = rows.weights.get(self._measure) if method.baseline.needs_weights else None
                    try:
                        values[at, part], own[at, part], looking[:, number] = _served(method, rows, weight)
                    except ValueError as error:
                        self._refused.append(name)
                        self._told.append(f"{name} is left out from step {rows.step:,} on: {error}")
                        break
        self._told += [str(warning.message) for warning in caught]
        for number, (rows, part) in enumerate(each):
            self._account(rows, values[:, part], own[:, part], reach[:, number].tolist())

    def _account(self, rows: StepRows, values: np.ndarray, own: np.ndarray, reach: list[float]) -> None:
        """Add the figures of a step to those of the run."""
        visits, weight = rows.visits(), rows.weights.get(self._measure)
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
        self._lowest = min(self._lowest, float(rows.reward.min()))
        self._highest = max(self._highest, float(rows.reward.max()))
        dead, right = rows.dead_groups(self._highest)
        mean, returned = float(rows.reward.mean()), float(eligible.mean())
        figures = [float(rows.step), mean, dead, right, returned, *reach]
        figures += [*_means(errors, several).tolist(), *_means(noises, eligible).tolist()]
        for column, figure in zip(self.steps.values(), figures, strict=True):
            column.append(figure)

    def _make_room(self) -> None:
        """Let every prompt have its number of visits, in an array that at least doubles when it grows."""
        known, needed = len(self._visits), len(self._number)
        if needed > known:
            self._visits = np.pad(self._visits, (0, max(needed, 2 * known) - known))

    def summary(self) -> RunSummary:
        """The summary of all complete steps."""
        n_steps = len(self.steps["step"])
        recent = max(FEWEST_RECENT, math.ceil(RECENT_SHARE * n_steps))
        newest = {name: Recent.of(np.array(self.steps[name][-recent:])) for name in RECENT}
        errors = self._errors.means
        absolute = len(errors[1]) > 0
        errors = errors if absolute else self._raw.means
        names = list(self._methods)
        return RunSummary(
            n_completions=self._completions,
            n_prompts=int((self._visits > 0).sum()),
            n_steps=n_steps,
            last_step=self.last_step,
            recent_steps=min(recent, n_steps),
            **newest,
            reach_of=self._looking,
            absolute=absolute,
            measured_by=self._measure,
            reference=names[-1],
            methods=method_figures(names, errors, self._noises.means, absolute=absolute),
            late=self._late,
            told=tuple(filter(None, dict.fromkeys((*self._told, self._widened)))),
        )


RECENT = ("reward", "dead", "right", "returned", "reached")


def _served(
    estimator: AdvantageEstimator, rows: StepRows, weights: Any
) -> tuple[np.ndarray, np.ndarray | float, tuple[Any, Any]]:
    """Values of the step's completions, their derivatives in their own rewards, and `reach_of` the step."""
    prompts: Any = rows.prompt  # arrays of whole numbers are the quickest ids
    streams: Any = rows.stream
    estimator.step(prompts, rows.reward, rows.step, stream_ids=streams, weights=weights)
    record = estimator.record
    assert record is not None  # a step has completions
    settled, groups, visits, step, newest = record.baseline, record.groups, record.visits, record.step, np.zeros(1)
    own = settled.own_derivative(groups, visits, step=step, carry=record.carry)
    own = own if isinstance(own, float) else record.packing.unpack(np.broadcast_to(own, groups.reward.shape))
    if visits.count.shape[-1]:
        newest = np.where(visits.count[:, -1] > 0, visits.lag[:, -1], 0.0)
    return record.packing.unpack(record.values), own, reach_of(settled, groups, visits, step, newest)


def _means(figures: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Mean over some visits, shape (M,); NaN where there are none."""
    return figures[:, counted].mean(axis=1) if counted.any() else np.full(len(figures), np.nan)
