"""A whole training run's rewards."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from kaestat.checks import check_column, check_ids
from kaestat.history import MAX_REWARD, MAX_STEP
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
        prompts = check_ids("prompt", prompt, size)
        groups = None if group is None else check_ids("group", group, size)
        if not np.isfinite(rewards).all():
            bad = int(np.argmin(np.isfinite(rewards)))
            raise ValueError(f"reward must be finite: entry {bad} is {rewards[bad]}. Leave such completions out.")
        if np.abs(rewards).max() > MAX_REWARD:
            bad = int(np.argmax(np.abs(rewards)))
            raise ValueError(f"reward must lie within {MAX_REWARD:g}: entry {bad} is {rewards[bad]}. Rescale rewards.")
        whole = (steps >= 0) & (steps <= MAX_STEP) & (steps == np.floor(steps))
        if not whole.all():
            bad = int(np.argmin(whole))
            raise ValueError(f"step must be whole numbers from 0 to {MAX_STEP}: entry {bad} is {steps[bad]}.")
        codes, self.prompts = _factorize(prompts)
        frame = pd.DataFrame(
            {
                "prompt": codes,
                "step": steps.astype(np.int64),
                "reward": rewards,
                "group": 0 if groups is None else _factorize(groups)[0],
            }
        )
        order = np.lexsort((frame["group"], frame["prompt"], frame["step"]))
        self.frame = frame.iloc[order].reset_index(drop=True)
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
        pairs = self.frame["prompt"].to_numpy() * (self.frame["group"].max() + 1) + self.frame["group"].to_numpy()
        return LogUnits.of(self.frame, pd.factorize(pairs)[0])

    def units(self, unit: Literal["prompt", "group"]) -> LogUnits:
        """`prompt_units` or `group_units`."""
        return self.prompt_units if unit == "prompt" else self.group_units


def _factorize(labels: list[Hashable]) -> tuple[np.ndarray, list[Hashable]]:
    """Codes in order of first appearance, and the distinct labels."""
    distinct = list(dict.fromkeys(labels))
    number = {label: code for code, label in enumerate(distinct)}
    return np.fromiter(map(number.__getitem__, labels), dtype=np.int64, count=len(labels)), distinct
