"""A whole training run's rewards."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from kaestat.checks import check_column, check_ids
from kaestat.history import MAX_REWARD, MAX_STEP
from kaestat.logs.columns import choose_columns
from kaestat.logs.labels import Labels
from kaestat.logs.table import Table
from kaestat.logs.units import LogUnits


class RewardLog:
    """Rewards of every completion of a run, with the prompt and step of each.

    Parameters
    ----------
    prompt : sequence of hashables, length N
        Prompt of each completion. Like the other columns a list, NumPy array, pandas Series or torch tensor.
    step : sequence of int, length N
        Training step (or visit index) at which it was sampled, 0 or more; gaps are allowed.
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
    group_size_inferred : bool
        Whether the number of completions of a visit was inferred, by a reader of accuracies.

    Raises
    ------
    ValueError
        If lengths differ, the log is empty, a reward is not finite or beyond 1e70, a prompt is missing, or a step is
        negative or no whole number.
    TypeError
        If a reward or step is no number, or a prompt not hashable.

    Examples
    --------
    >>> log = RewardLog(["a", "a", "b", "b"], [0, 0, 0, 0], [1, 0, 1, 1])
    >>> log.n_visits
    2
    """

    group_size_inferred = False

    def __init__(
        self,
        prompt: Sequence[Hashable] | np.ndarray | pd.Series[Any],
        step: Sequence[int] | np.ndarray | pd.Series[Any],
        reward: Sequence[float] | np.ndarray | pd.Series[Any],
        group: Sequence[Hashable] | np.ndarray | pd.Series[Any] | None = None,
        *,
        time_axis: Literal["step", "visit"] = "step",
    ):
        if not isinstance(time_axis, str) or time_axis not in ("step", "visit"):
            raise ValueError(f'time_axis must be "step" or "visit", got {time_axis!r}.')
        rewards = check_column("reward", reward)
        size = len(rewards)
        if size == 0:
            raise ValueError("the log is empty: it holds no rewards.")
        steps = check_column("step", step, size)
        prompts = Labels.of(check_ids("prompt", prompt, size))
        groups = None if group is None else Labels.of(check_ids("group", group, size))
        if not np.isfinite(rewards).all():
            bad = int(np.argmin(np.isfinite(rewards)))
            raise ValueError(f"reward must be finite: entry {bad} is {rewards[bad]}. Leave such completions out.")
        if max(rewards.max(), -rewards.min()) > MAX_REWARD:
            bad = int(np.argmax(np.abs(rewards)))
            raise ValueError(f"reward must lie within {MAX_REWARD:g}: entry {bad} is {rewards[bad]}. Rescale rewards.")
        whole = (steps >= 0) & (steps <= MAX_STEP) & (steps == np.floor(steps))
        if not whole.all():
            bad = int(np.argmin(whole))
            raise ValueError(f"step must be whole numbers from 0 to {MAX_STEP}: entry {bad} is {steps[bad]}.")
        self._hold(prompts, steps.astype(np.int64), rewards.copy(), groups, time_axis)

    @classmethod
    def of_labels(
        cls,
        prompt: Labels,
        step: np.ndarray,
        reward: np.ndarray,
        group: Labels | None = None,
        *,
        time_axis: Literal["step", "visit"] = "step",
    ) -> RewardLog:
        """A log of columns that are coded and checked already, as readers have them; nothing is checked again.

        Parameters
        ----------
        prompt : Labels, length N
        step : ndarray of int64, shape (N,)
        reward : ndarray of float64, shape (N,)
        group : Labels, length N, optional
        time_axis : {"step", "visit"}
        """
        log = cls.__new__(cls)
        log._hold(prompt, step, reward, group, time_axis)
        return log

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        prompt: str | None = None,
        step: str | None = None,
        reward: str | None = None,
        group: str | None = None,
    ) -> RewardLog:
        """A log of a table with one completion per row.

        Parameters
        ----------
        frame : pandas.DataFrame
            Other columns, and the index, do not matter.
        prompt, step, reward, group : str, optional
            Columns. None takes the column that is called so, or by another usual name, as `kaestat.read_log` does;
            ``group`` may be absent.

        Raises
        ------
        ValueError
            If a column is missing or ambiguous, there is no row, or a value is missing or invalid.
        TypeError
            If ``frame`` is no DataFrame, or a column's name is no text.

        Examples
        --------
        >>> frame = pd.DataFrame({"Prompt": ["a", "a"], "global_step": [0, 0], "score": [1, 0]})
        >>> RewardLog.from_frame(frame)
        RewardLog(2 completions, 1 prompts, 1 visits, 1 steps)
        """
        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"frame must be a pandas DataFrame, got {type(frame).__name__}.")
        found = [str(name) for name in frame.columns]
        chosen = choose_columns("frame", found, {"prompt": prompt, "step": step, "reward": reward, "group": group})
        columns = {name: frame.iloc[:, found.index(name)].copy() for name in chosen.values()}
        if frame.empty:
            raise ValueError("frame: has columns but no rows.")
        return cls.of_table(Table("frame", columns, lambda row: f"row {row + 1}"), chosen)

    @classmethod
    def of_table(cls, table: Table, names: Mapping[str, str]) -> RewardLog:
        """A log of a table whose columns for ``prompt``, ``step``, ``reward`` and perhaps ``group`` are known."""
        return cls.of_labels(
            table.labels(names["prompt"]),
            table.steps(names["step"]),
            table.rewards(names["reward"]),
            table.labels(names["group"]) if "group" in names else None,
        )

    def _hold(self, prompt: Labels, step: np.ndarray, reward: np.ndarray, group: Labels | None, time_axis: str) -> None:
        codes = np.zeros(len(reward), dtype=np.int32) if group is None else group.codes
        columns = {"prompt": prompt.codes, "step": step, "reward": reward, "group": codes}
        order = _order(prompt.codes, step, codes)
        if order is not None:
            columns = {name: column[order] for name, column in columns.items()}
        self.frame = pd.DataFrame(columns, copy=False)
        self.prompts = prompt.distinct
        self.time_axis = time_axis
        self.has_groups = group is not None

    def __repr__(self) -> str:
        time = f"{self.n_steps} steps" if self.time_axis == "step" else f"up to {self.n_steps} of a prompt"
        return f"RewardLog({len(self.frame)} completions, {len(self.prompts)} prompts, {self.n_visits} visits, {time})"

    def subset(self, kept: np.ndarray) -> RewardLog:
        """The rewards of some of the prompts.

        Parameters
        ----------
        kept : ndarray of bool, shape (len(prompts),)

        Raises
        ------
        ValueError
            If no prompt is kept.
        """
        if not kept.any():
            raise ValueError("kept is False for every prompt: a log needs one at least.")
        code = self.frame["prompt"].to_numpy()
        frame = self.frame[kept[code]].reset_index(drop=True)
        frame["prompt"] = (np.cumsum(kept) - 1)[frame["prompt"].to_numpy()]
        part = object.__new__(type(self))  # what `__init__` checks and sorts is checked and sorted
        part.prompts = [prompt for prompt, keep in zip(self.prompts, kept.tolist(), strict=True) if keep]
        part.frame, part.time_axis, part.has_groups = frame, self.time_axis, self.has_groups
        return part

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
        prompt, group = (self.frame[name].to_numpy().astype(np.int64) for name in ("prompt", "group"))
        pairs = prompt * (group.max() + 1) + group
        return LogUnits.of(self.frame, pd.factorize(pairs)[0])

    def units(self, unit: Literal["prompt", "group"]) -> LogUnits:
        """`prompt_units` or `group_units`."""
        return self.prompt_units if unit == "prompt" else self.group_units


def as_log(log: RewardLog | pd.DataFrame) -> RewardLog:
    """The log itself, or the one in a table with the usual column names."""
    if isinstance(log, pd.DataFrame):
        return RewardLog.from_frame(log)
    if not isinstance(log, RewardLog):
        raise TypeError(f"log must be a RewardLog (read_log reads files) or a DataFrame, got {type(log).__name__}.")
    return log


def _order(prompt: np.ndarray, step: np.ndarray, group: np.ndarray) -> np.ndarray | None:
    """Rows sorted by step, prompt and group, equal ones as they stand; None if they stand sorted.

    Runs of equal rows are sorted, not rows: logs are written visit by visit.
    """
    changes = np.ones(len(step), dtype=bool)
    changes[1:] = (step[1:] != step[:-1]) | (prompt[1:] != prompt[:-1]) | (group[1:] != group[:-1])
    first = np.flatnonzero(changes)
    order = np.lexsort((group[first], prompt[first], step[first]))
    if (order[1:] > order[:-1]).all():
        return None
    size = np.diff(np.append(first, len(step)))[order]
    ends = np.cumsum(size)
    return np.repeat(first[order] - (ends - size), size) + np.arange(len(step))
