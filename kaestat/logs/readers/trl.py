"""TRL's logged completions (``log_completions=True``): Parquet files ``completions/completions_{step:05d}.parquet``.

TRL 1.16's GRPO and RLOO trainers write the columns ``step, prompt, completion``, one column of rewards per reward
function, the columns that reward functions passed to ``log_extra``, and ``advantage``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kaestat.core.checks import MAX_REWARD
from kaestat.core.spelling import named, spelled, spelled_list
from kaestat.logs.columns import LEFT_OUT, refuse_missing_column
from kaestat.logs.labels import Labels
from kaestat.logs.readers import parquet
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.ungraded import with_ungraded

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow

_OWN = ("step", "prompt", "completion", "advantage")
# What our trainer for TRL writes beside these; a reward's column is of floating point, a length is not.
_OF_OURS = {"weight": "score_norm", "length": "completion_length"}
_PATTERN = "completions_*.parquet"
_EQUAL = 1e-9  # rewards of a group vary by no more than rounding
_PROPORTIONAL = 0.9999  # correlation of rewards and advantages that rounding to float32 leaves
_ODD_GROUPS = 0.1


def recognises(path: Path) -> bool:
    """Whether the path is a folder with TRL's files (or the output folder that holds it), or one such file."""
    if path.is_dir():
        return bool(completion_files(path))
    return parquet.recognises(path) and set(_OWN) <= set(parquet.column_names(path))


def read_trl(
    path: Path,
    *,
    reward: str | Sequence[str] | None = None,
    reward_weights: Sequence[float] | None = None,
    weight: str | None = None,
    length: str | None = None,
    importance: str | None = None,
) -> RewardLog:
    """The log of the completions in TRL's files.

    The reward is the weighted sum over the reward functions, as the trainer forms it: a function that gave None adds
    nothing, and a completion with None from all of them is left out; a warning counts these. Where TRL logged one batch
    of completions again at later steps (``num_iterations`` or ``steps_per_generation``), only the first file counts.
    Completions of evaluations during training are in the same files, unmarked; leave such files out if that matters.
    Raises an ImportError if pyarrow is missing, and a ValueError if a file is torn, a column is missing, a later file
    has a further reward, or the sum of several columns does not explain the advantages.

    Parameters
    ----------
    path : Path
        The folder ``completions``, the trainer's output folder, or one file.
    reward : str or sequence of str, optional
        Reward columns. None takes all floating-point columns that are not TRL's own, and, if there are several, checks
        that their sum explains the logged advantages: a column may come from ``log_extra``, or weights be missing.
    reward_weights : sequence of float, optional
        The run's ``reward_weights``, in the order of the columns; None means 1.
    weight, length, importance : str, optional
        Columns of ``log_extra``. None takes ``score_norm`` and ``completion_length``, in whole numbers, where they
        are, as `kaestat.integrations.trl.BaselineGRPOTrainer` writes them; any other may be a reward's. Completions of
        evaluations have no ``score_norm``, and so are left out.
    """
    import pandas as pd

    files = completion_files(path) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{path}: holds no {_PATTERN}; give the folder that TRL wrote them to.")
    measures = _measures(files[0], {"weight": weight, "length": length, "importance": importance})
    known = set(measures.values())
    names = _reward_names(files[0], parquet.load(files[0], columns=()).schema, reward, known)
    weights = _weights(names, reward_weights)
    parts, read, before = [], [], None
    for file in files:
        content = parquet.load(file)
        if added := [name for name in _floating(content.schema, known) if reward is None and name not in names]:
            raise ValueError(
                f"{file}: has a reward {added[0]} that {files[0].name} lacks. Name those to read with "
                f"{spelled_list('reward')}, or read the files from here on as a log of their own."
            )
        batch = content.drop_columns(["step"]) if "step" in content.column_names else content
        if before is None or not batch.equals(before):
            parts.append(_read_file(file, content, names, weights, measures))
            read.append(file)
        before = batch
    labels, frames, ungraded = zip(*parts, strict=True)
    prompts = Labels.joined(labels)
    log = pd.concat(frames, ignore_index=True)
    if log.empty:
        raise ValueError(f"{path}: no completion has a reward ({', '.join(names)} are all empty).")
    if not (log["reward"].abs() <= MAX_REWARD).all():
        raise ValueError(f"{path}: with these reward_weights rewards are beyond {MAX_REWARD:g}; give smaller ones.")
    if reward is None and len(names) > 1:
        _check_advantages(path, log.assign(prompt=prompts.codes), names)
    columns = {part: log[part].to_numpy() for part in measures}
    found = RewardLog.of_labels(prompts, log["step"].to_numpy(), log["reward"].to_numpy(), measures=columns)
    return with_ungraded(found, read, ungraded)


def completion_files(folder: Path) -> list[Path]:
    """TRL's files in the output folder, or in its subfolder ``completions``, in the order of their steps."""
    inner = folder / "completions"
    return sorted((inner if inner.is_dir() else folder).glob(_PATTERN), key=lambda file: (len(file.name), file.name))


def _measures(path: Path, hints: dict[str, str | None]) -> dict[str, str]:
    """Columns of weights, lengths and importance ratios."""
    schema = parquet.load(path, columns=()).schema
    ours = {
        part: name
        for part, name in _OF_OURS.items()
        if name in schema.names and _is_floating(schema.field(name).type) == (part == "weight")
    }
    chosen = ours | {part: name for part, name in hints.items() if name is not None}
    return {part: name for part, name in chosen.items() if name != LEFT_OUT}


def _reward_names(path: Path, schema: pyarrow.Schema, reward: str | Sequence[str] | None, taken: set[str]) -> list[str]:
    if reward is not None:
        names = [reward] if isinstance(reward, str) else _listed(reward)
    else:
        names = _floating(schema, taken)
    if not names:
        raise ValueError(
            f"{path}: no floating-point column other than TRL's own; it has {', '.join(schema.names)}. Name the reward "
            f"with {spelled('reward')}."
        )
    return names


def _floating(schema: pyarrow.Schema, taken: set[str]) -> list[str]:
    """The columns of floating point that are neither TRL's own nor taken: the rewards, unless they are named."""
    own = {*_OWN, *taken, _OF_OURS["weight"]}
    return [field.name for field in schema if _is_floating(field.type) and field.name not in own]


def _listed(reward: Sequence[str]) -> list[str]:
    if not isinstance(reward, Sequence) or not all(isinstance(name, str) for name in reward):
        raise TypeError(f"reward must be the name of a column, or a list of names, got {reward!r}.")
    return list(reward)


def _is_floating(kind: pyarrow.DataType) -> bool:
    import pyarrow

    return pyarrow.types.is_floating(kind)


def _weights(names: list[str], weights: Sequence[float] | None) -> np.ndarray:
    try:
        numbers = np.ones(len(names)) if weights is None else np.asarray(weights, dtype=float)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"{named('reward_weights')} must be numbers, one for each of {', '.join(names)} ({error})."
        ) from error
    if numbers.shape != (len(names),) or not np.isfinite(numbers).all():
        raise ValueError(
            f"{named('reward_weights')} must be one finite number for each of {', '.join(names)}, got {numbers}."
        )
    return numbers


def _read_file(
    path: Path, content: pyarrow.Table, names: list[str], weights: np.ndarray, measures: dict[str, str]
) -> tuple[Labels, pd.DataFrame, int]:
    """Prompts, and step, reward and advantage (NaN if not logged), of the completions that have a reward.

    Otherwise the number of completions without a reward.
    """
    import pandas as pd

    if not {"step", "prompt"} <= set(content.column_names):
        raise ValueError(
            f"{path}: is not a log from TRL: it has {', '.join(content.column_names)}, not step and prompt."
        )
    for name, hint in [*((name, "reward") for name in names), *((name, part) for part, name in measures.items())]:
        refuse_missing_column(path, name, hint, content.column_names)
    logged = "advantage" in content.column_names
    wanted = dict.fromkeys(["step", "prompt", *names, *measures.values(), *(["advantage"] if logged else [])])
    table = parquet.as_table(path, content, list(wanted), labels=["prompt"])
    rewards = np.stack([table.rewards(name, allow_missing=True) for name in names])
    frame = pd.DataFrame(
        {
            "step": table.steps("step"),
            "reward": weights @ np.nan_to_num(rewards),
            "advantage": table.numbers("advantage") if logged else np.nan,
        }
    )
    graded, kept = ~np.isnan(rewards).all(axis=0), np.full(len(frame), True)
    for part, name in measures.items():
        frame[part] = table.measures(name, part, allow_missing=part == "weight")
        kept &= ~np.isnan(frame[part].to_numpy())
    return table.labels("prompt").take(kept & graded), frame[kept & graded], int((kept & ~graded).sum())


def _check_advantages(path: Path, log: pd.DataFrame, names: list[str]) -> None:
    """Raise if rewards and logged advantages do not rise in proportion within most prompts' groups."""
    import pandas as pd

    groups = log.groupby(["prompt", "step"], sort=False)[["reward", "advantage"]]
    deviation = log[["reward", "advantage"]] - groups.transform("mean")
    products = pd.DataFrame(
        {
            "rr": deviation["reward"] ** 2,
            "aa": deviation["advantage"] ** 2,
            "ra": deviation["reward"] * deviation["advantage"],
        }
    )
    sums = products.groupby([log["prompt"], log["step"]], sort=False).sum(min_count=1)  # NaN if none is logged
    varied = sums[sums["rr"] > _EQUAL]
    # Most, not all: two groups of one prompt are scaled apart.
    if len(varied) and (varied["ra"] <= _PROPORTIONAL * np.sqrt(varied["rr"] * varied["aa"])).mean() > _ODD_GROUPS:
        raise ValueError(
            f"{path}: the sum of the columns {', '.join(names)} does not explain the logged advantages. One may be an "
            "extra column (log_extra), or the run had reward_weights, a KL term in the reward or normalize_then_sum. "
            f"Name the rewards with {spelled_list('reward')}, and their weights with {spelled_list('reward_weights')}."
        )
