"""The columns of a table that hold the prompt, step, reward and group, and optional further data."""

import re
import warnings
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from kaestat.core.spelling import named, spelled

ALIASES = {
    "prompt": (
        "prompt_id", "prompt_text", "prompts", "question", "question_id", "question_text", "problem", "problem_id",
        "problem_text", "task_id", "input", "query", "query_id", "messages",
    ),
    "step": (
        "global_step", "global_steps", "training_step", "train_step", "train/global_step", "iteration", "_step",
        "steps", "update",
    ),
    "reward": ("rewards", "train/reward", "train/rewards", "score", "scalar_reward", "correct", "is_correct"),
    "group": ("group_id", "stream", "stream_id"),
    "weight": ("score_norm", "squared_score_norm", "score_norm_sq", "score_norm_squared"),
    "length": (
        "completion_length", "response_length", "output_length", "generation_length", "completion_tokens",
        "response_tokens", "output_tokens", "num_tokens", "n_tokens",
    ),
    "importance": ("importance_ratio", "importance_weight", "importance_sampling_ratio", "is_ratio"),
}  # fmt: skip
USUAL = {*ALIASES, *(alias for aliases in ALIASES.values() for alias in aliases)}
MEASURES = ("weight", "length", "importance")  # non-negative numbers that a log may have of each completion
REQUIRED = ("prompt", "step", "reward")
LEFT_OUT = "none"  # given for a measure: the log is read without it
RANDOM_IDS = ("uid", "request_id", "uuid")
TRL_COLUMNS = ("step", "prompt", "completion", "advantage")  # TRL's table of completions, with one for each reward
GENERATION = "kaestat_generation"  # our trainer's, in TRL's table: number of the generation, missing in evaluations
_ONE_REWARD = re.compile(r"(train/)?rewards?[/.].+")  # one of several rewards, as reward/accuracy


class LogWarning(UserWarning):
    """The warning about what a reader chose or left out, or cannot tell."""


def warn(message: str) -> None:
    """Issue a `LogWarning`."""
    warnings.warn(message, LogWarning, stacklevel=3)


def choose_columns(
    source: Path | str,
    columns: Sequence[str],
    hints: Mapping[str, str | None],
    own: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The column of each part, of a table with these columns.

    A hint is the column that the user named. None means the column with the part's name, its name ``own`` to the format
    or one of `ALIASES`. Of several the one with the part's own name is taken, and a `LogWarning` says so. ``group`` and
    `MEASURES` may be absent, and ``"none"`` leaves a measure out.
    """
    plain: dict[str, list[str]] = {}
    for name in dict.fromkeys(columns):
        plain.setdefault(plain_name(name), []).append(name)
    chosen = {}
    for part, hint in hints.items():
        if part in MEASURES and hint == LEFT_OUT:
            continue
        its_name = (own or {}).get(part, part)
        names = _usual(part, plain, its_name) if hint is None else [hint]
        if not names:
            continue
        refuse_missing_column(source, names[0], part, columns)
        if len(names) > 1:
            _tell_rivals(source, part, names, named=[plain_name(name) for name in names].count(its_name) == 1)
        chosen[part] = names[0]
    missing = [part for part in hints if part in REQUIRED and part not in chosen]
    if missing:
        raise ValueError(_missing(source, missing, columns))
    return chosen


def _tell_rivals(source: Path | str, part: str, names: Sequence[str], *, named: bool) -> None:
    """Warn of the columns that are not read, if the one that is has the part's own name; else raise a ValueError."""
    taken, *rivals = names
    if not named:
        without = f", or do without by {spelled(part, LEFT_OUT)}" if part in MEASURES else ""
        raise ValueError(
            f"{source}: {part} could be {' or '.join(names)}; choose with {spelled(part, taken)}{without}."
        )
    warn(
        f"{source}: {part} is read from {taken}, not from {' or '.join(rivals)}; choose with "
        f"{spelled(part, rivals[0])} or {spelled(part, taken)}."
    )


def refuse_missing_column(source: Path | str, name: str, hint: str, columns: Sequence[str]) -> None:
    """Raise a ValueError unless the table has exactly one such column, a TypeError if it is not a name."""
    if not isinstance(name, str):
        raise TypeError(f"{named(hint)} must be the name of a column, got {name!r}.")
    if name not in columns:
        raise ValueError(
            f"{source}: has no column {name!r}; it has {', '.join(columns)}. Name the right one with {spelled(hint)}."
        )
    if list(columns).count(name) > 1:
        raise ValueError(
            f"{source}: column {name!r} comes twice; rename or remove one, or name another with {spelled(hint)}."
        )


def _usual(part: str, plain: Mapping[str, list[str]], own: str) -> list[str]:
    """The columns with a usual name for the part, the likeliest first."""
    names = [name for alias in dict.fromkeys((own, part, *ALIASES[part])) for name in plain.get(alias, [])]
    if part != "reward" or names:
        return names
    if parts := [name for key, group in plain.items() if _ONE_REWARD.fullmatch(key) for name in group]:
        return parts
    others = {*TRL_COLUMNS, GENERATION, *(alias for aliases in ALIASES.values() for alias in aliases)}
    return [group[0] for key, group in plain.items() if key not in others] if set(TRL_COLUMNS) <= plain.keys() else []


def _missing(source: Path | str, parts: Sequence[str], columns: Sequence[str]) -> str:
    """What to do about columns that are not there, in one message."""
    random = [name for name in columns if plain_name(name) in RANDOM_IDS] if "prompt" in parts else []
    note = f" ({random[0]} is drawn anew at every step, so it names no prompt)" if random else ""
    it = "it" if len(parts) == 1 else "them"
    means = " If rows are means per step, log every completion instead." if list(parts) == ["prompt"] else ""
    close = {part: next(iter(get_close_matches(part, columns, 1)), None) for part in parts}
    usual = "; ".join(f"one of {', '.join((part, *ALIASES[part]))}" for part in parts)
    return (
        f"{source}: no {' and no '.join(parts)} column; it has {', '.join(columns)}{note}. "
        "Every row must be a completion, or a group with a list of rewards. "
        f"Name {it} with {', '.join(spelled(part, close[part]) for part in parts)}, or call {it} {usual}.{means}"
    )


def plain_name(name: str) -> str:
    """A name as it is compared: case, spaces and hyphens do not matter."""
    return name.strip().casefold().replace(" ", "_").replace("-", "_")
