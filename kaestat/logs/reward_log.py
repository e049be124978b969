"""The rewards of a whole training run."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kaestat.core.checks import MAX_REWARD, MAX_STEP, check_column, check_ids
from kaestat.core.seen_rewards import SeenRewards
from kaestat.core.spelling import counted
from kaestat.logs.columns import MEASURES, choose_columns
from kaestat.logs.labels import Labels
from kaestat.logs.measures import check_measures
from kaestat.logs.table import Table, code_labels, drops
from kaestat.logs.units import LogUnits

if TYPE_CHECKING:
    import pandas as pd

WEIGHTINGS = ("weight", "length")  # the better one first


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
    weight : sequence of float, length N, optional
        Squared norm W of each completion's score ``grad log pi``, or something proportional to it;
        `gradient_risk` measures noise with it.
    length : sequence of float, length N, optional
        Tokens of each completion, a stand-in for W (OPO: Hao et al., 2025).
    importance : sequence of float, length N, optional
        Ratio w of the probabilities of the completion under the trained policy and under the policy that sampled it;
        None means 1. `completion_weights` returns ``w^2 W``.
    time_axis : {"step", "visit"}
        The unit of ``step``: training steps, or visits of each prompt in order if the steps are unknown.

    Attributes
    ----------
    prompts : list
        Distinct prompts, in order of first appearance.
    frame : pandas.DataFrame
        A copy of the columns ``prompt`` (code into ``prompts``), ``step``, ``reward`` and ``group`` (code, 0 without
        groups), and of the others given; sorted by step, then prompt, then group.
    arrays : dict of str to ndarray
        The columns of ``frame``, without loading pandas.
    groups : list
        Distinct groups, in order of first appearance; empty without groups.
    group_size_inferred : bool
        Whether the number of completions of a visit was inferred, by a reader of accuracies.
    ungraded : int
        Number of rows that a reader left out because they lack a value, mostly the reward.
    columns : mapping of str to str
        The column that each part was read from, for a log from a table; otherwise empty.

    Raises
    ------
    ValueError
        If lengths differ, the log is empty, a reward is not finite or beyond 1e70, a prompt is missing, a step is
        negative or not a whole number, or a weight, length or ratio is missing, negative or beyond 1e20.
    TypeError
        If a reward or step is not a number, or a prompt not hashable.

    Examples
    --------
    >>> log = RewardLog(["a", "a", "b", "b"], [0, 0, 0, 0], [1, 0, 1, 1])
    >>> log.n_visits
    2
    """

    group_size_inferred = False
    ungraded = 0
    columns: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        prompt: Sequence[Hashable] | np.ndarray | pd.Series[Any],
        step: Sequence[int] | np.ndarray | pd.Series[Any],
        reward: Sequence[float] | np.ndarray | pd.Series[Any],
        group: Sequence[Hashable] | np.ndarray | pd.Series[Any] | None = None,
        *,
        weight: Sequence[float] | np.ndarray | pd.Series[Any] | None = None,
        length: Sequence[float] | np.ndarray | pd.Series[Any] | None = None,
        importance: Sequence[float] | np.ndarray | pd.Series[Any] | None = None,
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
        within = np.abs(rewards) <= MAX_REWARD
        if not within.all():
            bad = int(np.argmin(within))
            raise ValueError(
                f"reward must be finite and within {MAX_REWARD:g}: entry {bad} is {rewards[bad]}. Leave such "
                "completions out, or rescale rewards."
            )
        whole = (steps >= 0) & (steps <= MAX_STEP) & (steps == np.floor(steps))
        if not whole.all():
            bad = int(np.argmin(whole))
            raise ValueError(f"step must be whole numbers from 0 to {MAX_STEP}: entry {bad} is {steps[bad]}.")
        measures = check_measures(size, weight=weight, length=length, importance=importance)
        self._hold(prompts, steps.astype(np.int64), rewards.copy(), groups, measures, time_axis)

    @classmethod
    def of_labels(
        cls,
        prompt: Labels,
        step: np.ndarray,
        reward: np.ndarray,
        group: Labels | None = None,
        measures: Mapping[str, np.ndarray] = MappingProxyType({}),
        *,
        time_axis: Literal["step", "visit"] = "step",
    ) -> RewardLog:
        """The log of columns already coded and checked, as readers have them; no further checks."""
        log = cls.__new__(cls)
        log._hold(prompt, step, reward, group, measures, time_axis)
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
        weight: str | None = None,
        length: str | None = None,
        importance: str | None = None,
        missing: str = "refuse",
    ) -> RewardLog:
        """The log of a table with one completion per row.

        Parameters
        ----------
        frame : pandas.DataFrame
            Other columns, and the index, do not matter.
        prompt, step, reward, group, weight, length, importance : str, optional
            Names of columns. None means the column with this name, or with another usual name, as for
            `kaestat.read_log`; ``group`` and all after it may be absent, and ``"none"`` leaves weights, lengths or
            ratios out.
        missing : {"refuse", "drop"}
            What to do about rows that lack a value in one of these columns.

        Raises
        ------
        ValueError
            If a column is missing or ambiguous, there is no row, or a value is missing or invalid.
        TypeError
            If ``frame`` is not a DataFrame, or a column's name is not text.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"Prompt": ["a", "a"], "global_step": [0, 0], "score": [1, 0]})
        >>> RewardLog.from_frame(frame)
        RewardLog(2 completions, 1 prompt, 1 visit, 1 step)
        """
        import pandas as pd

        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"frame must be a pandas DataFrame, got {type(frame).__name__}.")
        columns_of_frame = [str(name) for name in frame.columns]
        hints = {"prompt": prompt, "step": step, "reward": reward, "group": group}
        hints |= {"weight": weight, "length": length, "importance": importance}
        names = choose_columns("frame", columns_of_frame, hints)
        given = {name: frame.iloc[:, columns_of_frame.index(name)] for name in names.values()}
        ids = {names[part] for part in ("prompt", "group") if part in names}
        columns = {name: code_labels(column) if name in ids else column.tolist() for name, column in given.items()}
        if frame.empty:
            raise ValueError("frame: has columns but no rows.")
        table = Table("frame", columns, lambda row: f"row {row + 1}")
        return cls.of_table(table, names, missing)

    @classmethod
    def of_table(cls, table: Table, names: Mapping[str, str], missing: str = "refuse") -> RewardLog:
        """The log of a table, given its columns for ``prompt``, ``step``, ``reward`` and others."""
        table, left_out = table.complete(names) if drops(missing) else (table, 0)
        if not len(table):
            raise ValueError(f"{table.source}: no row has a value for each of {', '.join(names.values())}.")
        log = cls.of_labels(
            table.labels(names["prompt"]),
            table.steps(names["step"]),
            table.rewards(names["reward"]),
            table.labels(names["group"]) if "group" in names else None,
            {part: table.measures(names[part], part) for part in MEASURES if part in names},
        )
        log.columns, log.ungraded = dict(names), left_out
        return log

    def _hold(
        self,
        prompt: Labels,
        step: np.ndarray,
        reward: np.ndarray,
        group: Labels | None,
        measures: Mapping[str, np.ndarray],
        time_axis: str,
    ) -> None:
        codes = np.zeros(len(reward), dtype=np.int32) if group is None else group.codes
        self.arrays = {"prompt": prompt.codes, "step": step, "reward": reward, "group": codes, **measures}
        order = np.lexsort((codes, prompt.codes, step))
        if (order[1:] < order[:-1]).any():
            self.arrays = {name: column[order] for name, column in self.arrays.items()}
        self.prompts = prompt.distinct
        self.groups = [] if group is None else group.distinct
        self.time_axis = time_axis
        self.has_groups = group is not None

    def __repr__(self) -> str:
        time = counted(self.n_steps, "step") if self.time_axis == "step" else f"up to {self.n_steps} of a prompt"
        sizes = {"completion": len(self.arrays["reward"]), "prompt": len(self.prompts), "visit": self.n_visits}
        return f"RewardLog({', '.join(counted(n, noun) for noun, n in sizes.items())}, {time})"

    def subset(self, chosen: np.ndarray) -> RewardLog:
        """The log of some of the prompts.

        Parameters
        ----------
        chosen : ndarray of bool, shape (len(prompts),)

        Raises
        ------
        ValueError
            If no prompt is chosen.
        """
        if not chosen.any():
            raise ValueError("chosen is False for every prompt: a log needs one at least.")
        return self._part(chosen[self.arrays["prompt"]], chosen)

    def until(self, step: int) -> tuple[RewardLog, np.ndarray]:
        """The log up to a step, and which prompts it has."""
        rows = self.arrays["step"] <= step
        chosen = np.bincount(self.arrays["prompt"][rows], minlength=len(self.prompts)) > 0
        return self._part(rows, chosen), chosen

    def _part(self, rows: np.ndarray, chosen: np.ndarray) -> RewardLog:
        arrays = {name: column[rows] for name, column in self.arrays.items()}
        arrays["prompt"] = (np.cumsum(chosen, dtype=np.int32) - 1)[arrays["prompt"]]
        part = object.__new__(type(self))  # already checked and sorted by `__init__`
        part.prompts = [prompt for prompt, keep in zip(self.prompts, chosen.tolist(), strict=True) if keep]
        part.arrays, part.time_axis, part.has_groups, part.groups = arrays, self.time_axis, self.has_groups, self.groups
        part.columns, part.ungraded = self.columns, self.ungraded
        return part

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The log as a table: a copy, so a change of it does not change the log."""
        import pandas as pd  # takes longer to load than the command line takes to read a log of 268,000 rows

        return pd.DataFrame(self.arrays)

    @property
    def n_steps(self) -> int:
        """Number of distinct steps."""
        return 1 + int(np.count_nonzero(np.diff(self.arrays["step"])))

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
        """The log's visits, with one unit for each prompt."""
        return LogUnits.of(self.arrays, self.arrays["prompt"])

    @cached_property
    def group_units(self) -> LogUnits:
        """The log's visits, with one unit for each (prompt, group); `prompt_units` for a log without groups."""
        if not self.has_groups:
            return self.prompt_units
        prompt, group = (self.arrays[name].astype(np.int64) for name in ("prompt", "group"))
        return LogUnits.of(self.arrays, np.unique(prompt * (group.max() + 1) + group, return_inverse=True)[1])

    def units(self, unit: Literal["prompt", "group"], weights: str | None = None) -> LogUnits:
        """`prompt_units` or `group_units`, weighted by `completion_weights` if ``weights`` is given."""
        plain = self.prompt_units if unit == "prompt" else self.group_units
        return plain if weights is None else plain.weighted(self.completion_weights(weights))

    @cached_property
    def reward_bounds(self) -> np.ndarray | None:
        """Steps, and the lowest and highest that rewards count as there, (3, T); None if no reward lies outside."""
        step, reward = self.arrays["step"], self.arrays["reward"]
        first = np.flatnonzero(np.diff(step, prepend=step[0] - 1))
        seen, ends, outside = SeenRewards(), [], False
        for part in np.split(reward, first[1:]):
            ends.append(seen.ends)
            outside |= seen.bounded(part) is not part
            seen = seen.after(part)
        return np.stack([step[first], *np.transpose(ends)]) if outside else None

    @property
    def weightings(self) -> tuple[str, ...]:
        """The columns that can weigh completions: ``weight``, ``length``, both or none."""
        return tuple(name for name in WEIGHTINGS if name in self.arrays)

    def completion_weights(self, weights: str) -> np.ndarray:
        """Weight of each completion, times the square of its importance ratio if the log has these.

        Parameters
        ----------
        weights : {"weight", "length"}
            Column of `frame`.

        Returns
        -------
        ndarray, shape (N,)
            In the order of ``frame``.

        Raises
        ------
        ValueError
            If the log has no such column.
        """
        if weights not in self.weightings:
            choice = " or ".join(self.weightings)
            raise ValueError(
                f"weights={weights!r}: "
                + (f"this log has {choice}." if choice else "this log has neither weights nor lengths.")
                + " Give RewardLog a weight (squared score norm) or a length (tokens) for each completion."
            )
        column = self.arrays[weights]
        return column * self.arrays["importance"] ** 2 if "importance" in self.arrays else column


def as_log(log: RewardLog | pd.DataFrame) -> RewardLog:
    """The log itself, or the log of a table with the usual column names."""
    if isinstance(log, RewardLog):
        return log
    import pandas as pd

    if not isinstance(log, pd.DataFrame):
        raise TypeError(f"log must be a RewardLog (read_log reads files) or a DataFrame, got {type(log).__name__}.")
    return RewardLog.from_frame(log)
