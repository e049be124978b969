"""TRL's logged completions (``log_completions=True``): Parquet files ``completions/completions_{step:05d}.parquet``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kaestat.core.checks import check_numbers
from kaestat.core.spelling import counted, named, spelled, spelled_list
from kaestat.logs.columns import GENERATION, LEFT_OUT, TRL_COLUMNS, refuse_missing_column, warn
from kaestat.logs.readers import parquet
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.table import Table

if TYPE_CHECKING:
    import pyarrow

# What our trainer for TRL writes beside these; a reward's column is of floating point, a length is not.
_OF_OURS = {"weight": "score_norm", "length": "completion_length"}
_PATTERN = "completions_*.parquet"
_FLOATS = ("halffloat", "float", "double")
_EQUAL = 1e-9  # rewards of a group vary by no more than rounding
_PROPORTIONAL = 0.9999  # correlation of rewards and advantages that rounding to float32 leaves
_ODD_GROUPS = 0.1


def recognises(path: Path) -> bool:
    """Whether the path is a folder with TRL's files (or the output folder that holds it), or one such file."""
    return bool(completion_files(path)) if path.is_dir() else parquet.recognises(path) and _has_own(path)


def read_trl(
    path: Path,
    *,
    reward: str | Sequence[str] | None = None,
    reward_weights: Sequence[float] | None = None,
    weight: str | None = None,
    length: str | None = None,
    importance: str | None = None,
    missing: str = "drop",
) -> RewardLog:
    """The log of the completions in TRL's files, or in one of them.

    The reward is the weighted sum over the reward functions; a completion with None from all of them has none. Without
    ``reward`` all floating-point columns count that are neither TRL's nor our trainer's, and the sum of several must
    explain the logged advantages. Where TRL logged one batch again at later steps, only the first counts.

    In our trainer's log completions of evaluations are left out, and warnings count these and the generations that are
    missing. In TRL's own log nothing marks them: warnings name steps of unusual sizes, and gaps between steps.
    """
    files = completion_files(path) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{path}: holds no {_PATTERN}; give the folder that TRL wrote them to.")
    schema = parquet.load(files[0], columns=()).schema
    measures = _measures(schema, {"weight": weight, "length": length, "importance": importance})
    names = _reward_names(files[0], schema, reward, set(measures.values()))
    weights = np.ones(len(names)) if reward_weights is None else check_numbers(named("reward_weights"), reward_weights)
    if weights.shape != (len(names),):
        raise ValueError(f"{named('reward_weights')} must be one number for each of {', '.join(names)}, got {weights}.")
    further = [name for name in ("advantage", GENERATION) if name in schema.names]
    wanted = list(dict.fromkeys(["step", "prompt", *names, *measures.values(), *further]))
    tables: list[Table] = []
    before, logged = None, set()
    for file in files:
        content = parquet.load(file)
        _check_columns(file, content.schema, files[0], names, measures, named=reward is not None)
        table = parquet.as_table(file, content, wanted, labels=["prompt"])
        steps = table.steps("step")
        new, before = _new_rows(content, steps, before)
        logged |= set(steps.tolist())
        tables.append(_with_total(table.rows(new), names, weights))
    table = Table.joined(path, tables)
    if GENERATION in further:
        table = _trained_on(table)
    else:
        _name_odd_steps(table, logged)
    if reward is None and len(names) > 1 and "advantage" in further:
        _check_advantages(table, names)
    return RewardLog.of_table(
        table, {"prompt": "prompt", "step": "step", "reward": " + ".join(names)} | measures, missing
    )


def completion_files(folder: Path) -> list[Path]:
    """TRL's files in the output folder, in its subfolder ``completions`` or in a downloaded data set, step by step."""
    for place in (folder / "completions", folder):
        if files := list(place.glob(_PATTERN)):
            return sorted(files, key=lambda file: (len(file.name), file.name))
    return sorted(
        file for pattern in ("*.parquet", "data/*.parquet") for file in folder.glob(pattern) if _has_own(file)
    )


def _has_own(path: Path) -> bool:
    with suppress(ValueError):  # it is not complete
        return set(TRL_COLUMNS) <= set(parquet.column_names(path))
    return False


def _measures(schema: pyarrow.Schema, hints: dict[str, str | None]) -> dict[str, str]:
    """Columns of weights, lengths and importance ratios."""
    ours = {
        part: name
        for part, name in _OF_OURS.items()
        if name in schema.names and (str(schema.field(name).type) in _FLOATS) == (part == "weight")
    }
    chosen = ours | {part: name for part, name in hints.items() if name is not None}
    return {part: name for part, name in chosen.items() if name != LEFT_OUT}


def _reward_names(path: Path, schema: pyarrow.Schema, reward: str | Sequence[str] | None, taken: set[str]) -> list[str]:
    if reward is None:
        names = _floating(schema, taken)
    elif isinstance(reward, str):
        names = [reward]
    elif isinstance(reward, Sequence) and all(isinstance(name, str) for name in reward):
        names = list(reward)
    else:
        raise TypeError(f"reward must be the name of a column, or a list of names, got {reward!r}.")
    if not names:
        raise ValueError(
            f"{path}: no floating-point column other than TRL's own; it has {', '.join(schema.names)}. Name the reward "
            f"with {spelled('reward')}."
        )
    return names


def _floating(schema: pyarrow.Schema, taken: set[str]) -> list[str]:
    """The columns of floating point that are neither TRL's, our own nor taken: the rewards, unless they are named."""
    own = {*TRL_COLUMNS, *taken, _OF_OURS["weight"], GENERATION}
    return [field.name for field in schema if str(field.type) in _FLOATS and field.name not in own]


def _check_columns(
    path: Path, schema: pyarrow.Schema, first: Path, names: list[str], measures: dict[str, str], *, named: bool
) -> None:
    """Raise a ValueError if a column is missing, or a reward is new in this file and rewards are not named."""
    if not {"step", "prompt"} <= set(schema.names):
        raise ValueError(f"{path}: is not a log from TRL: it has {', '.join(schema.names)}, not step and prompt.")
    for name in _floating(schema, set(measures.values())):
        if not named and name not in names:
            raise ValueError(
                f"{path}: has a reward {name} that {first.name} lacks. Name those to read with "
                f"{spelled_list('reward')}, or read the files from here on as a log of their own."
            )
    for hint, name in [*(("reward", name) for name in names), *measures.items()]:
        refuse_missing_column(path, name, hint, schema.names)


def _new_rows(
    content: pyarrow.Table, steps: np.ndarray, before: pyarrow.Table | None
) -> tuple[np.ndarray, pyarrow.Table]:
    """Which rows do not repeat the batch of the step before them, shape (N,), and the last batch."""
    new = np.full(len(steps), True)
    for begin, end in pairwise([0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]):
        batch = content.drop_columns(["step"]).slice(begin, end - begin)
        new[begin:end] = before is None or not batch.equals(before)
        before = batch
    return new, before


def _with_total(table: Table, names: list[str], weights: np.ndarray) -> Table:
    """The table with the reward of each completion, NaN where no function gave one."""
    rewards = np.full((len(names), len(table)), np.nan)
    for own, name in zip(rewards, names, strict=True):
        given = ~table.lacks("reward", name)
        own[given] = table.rows(given).rewards(name)
    total = np.where(np.isnan(rewards).all(axis=0), np.nan, weights @ np.nan_to_num(rewards))
    others = {name: column for name, column in table.columns.items() if name not in names}
    return replace(table, columns=others | {" + ".join(names): total})


def _trained_on(table: Table) -> Table:
    """The completions that our trainer trained on, each generation once; a `LogWarning` says what is missing."""
    generation, step = table.numbers(GENERATION), table.steps("step")
    evaluated = np.isnan(generation)
    if evaluated.all():
        raise ValueError(
            f"{table.source}: holds completions of evaluations alone. They replace those of training at the same step; "
            "evaluate at fewer steps."
        )
    if evaluated.any():
        warn(
            f"{table.source}: {evaluated.sum():,} completions of evaluations are left out. At steps "
            f"{_some(step[evaluated])} they stand in place of completions of training."
        )
    numbers, first, which = np.unique(generation[~evaluated], return_index=True, return_inverse=True)
    trained = ~evaluated
    trained[trained] = step[trained] == step[trained][first][which]  # TRL logs a generation at each step that uses it
    sizes = np.bincount(which[trained[~evaluated]])
    if lost := int(numbers[-1] - numbers[0]) + 1 - int((sizes == sizes.max()).sum()):
        warn(
            f"{table.source}: {counted(lost, 'generation')} from {numbers[0]:.0f} to {numbers[-1]:.0f} missing or not "
            "complete. TRL logs the last generation of a step, unless an evaluation follows."
        )
    return table.rows(trained)


def _name_odd_steps(table: Table, logged: set[int]) -> None:
    """Warn about steps that have other numbers of completions or prompts than most, and about gaps between steps."""
    step, prompt = table.steps("step"), table.labels("prompt").codes
    visits = np.unique(np.stack([step, prompt]), axis=1)[0]
    steps, rows = np.unique(step, return_counts=True)
    sizes = list(zip(rows.tolist(), np.unique(visits, return_counts=True)[1].tolist(), strict=True))
    usual = Counter(sizes).most_common(1)[0][0]
    if odd := [number for number, size in zip(steps.tolist(), sizes, strict=True) if size != usual]:
        warn(
            f"{table.source}: most steps have {counted(usual[0], 'completion')} of {counted(usual[1], 'prompt')}, but "
            f"not {_some(odd)}. Those may be of an evaluation, which nothing marks in TRL's own log."
        )
    gaps = {after: after - before for before, after in pairwise(sorted(logged))}
    between = max(Counter(gaps.values()).items(), key=lambda of: of[::-1], default=(0, 0))[0]  # a tie: the longer
    if missing := [after for after, gap in gaps.items() if gap > between]:
        warn(f"{table.source}: most steps are {between} apart, but some before {_some(missing)} are missing.")


def _some(numbers: Iterable[int]) -> str:
    """The first of some numbers, and how many more there are."""
    distinct = list(dict.fromkeys(int(number) for number in numbers))
    return ", ".join(map(str, distinct[:4])) + (f" and {len(distinct) - 4} more" if len(distinct) > 4 else "")


def _check_advantages(table: Table, names: list[str]) -> None:
    """Raise if rewards and logged advantages do not rise in proportion within most prompts' groups."""
    reward, advantage = table.numbers(" + ".join(names)), table.numbers("advantage")
    given = ~np.isnan(reward + advantage)
    pairs = np.stack([table.labels("prompt").codes, table.steps("step")])[:, given]
    group = np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1)

    def sums(values: np.ndarray) -> np.ndarray:
        return np.bincount(group, values)

    r, a = (each - (sums(each) / sums(np.ones(len(each))))[group] for each in (reward[given], advantage[given]))
    rr, aa, ra = sums(r * r), sums(a * a), sums(r * a)
    varied = rr > _EQUAL
    odd = (ra <= _PROPORTIONAL * np.sqrt(rr * aa))[varied]
    # Most, not all: two groups of one prompt are scaled apart.
    if len(odd) and odd.mean() > _ODD_GROUPS:
        raise ValueError(
            f"{table.source}: the sum of the columns {', '.join(names)} does not explain the logged advantages. One "
            "may be an extra column (log_extra), or the run had reward_weights, a KL term in the reward or "
            f"normalize_then_sum. Name the rewards with {spelled_list('reward')}, and their weights with "
            f"{spelled_list('reward_weights')}."
        )
