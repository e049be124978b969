"""The columns of a table that hold the prompt, step, reward and group, and optional further data."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from kaestat.core.spelling import named, spelled

ALIASES = {
    "prompt": (
        "prompt_id", "prompt_text", "prompts", "question", "question_id", "question_text", "problem", "problem_id",
        "problem_text", "task_id", "input", "query", "query_id",
    ),
    "step": (
        "global_step", "global_steps", "training_step", "train_step", "train/global_step", "iteration", "_step",
        "steps",
    ),
    "reward": ("rewards", "train/reward", "train/rewards", "score", "correct", "is_correct"),
    "group": ("group_id", "stream", "stream_id"),
    "weight": ("score_norm", "squared_score_norm", "score_norm_sq", "score_norm_squared"),
    "length": (
        "completion_length", "response_length", "output_length", "generation_length", "completion_tokens",
        "response_tokens", "output_tokens", "num_tokens", "n_tokens",
    ),
    "importance": ("importance_ratio", "importance_weight", "importance_sampling_ratio", "is_ratio"),
}  # fmt: skip
MEASURES = ("weight", "length", "importance")  # non-negative numbers that a log may have of each completion
OPTIONAL = ("group",)
LEFT_OUT = "none"  # given for a measure: the log is read without it
RANDOM_IDS = ("uid", "request_id", "uuid")


def choose_columns(source: Path | str, found: Sequence[str], hints: Mapping[str, str | None]) -> dict[str, str]:
    """The column for each part, of the table whose columns are ``found``.

    A hint is the column that the user named. None means the column with exactly that name, else the only one among
    `ALIASES`, ignoring case and treating spaces and hyphens as underscores. ``group`` and `MEASURES` may be absent, and
    ``"none"`` leaves a measure out. A column ``uid`` is never used for the prompt: frameworks generate it anew at every
    step. A ValueError if a column is missing, ambiguous or occurs twice; a TypeError if a hint is not text.
    """
    plain: dict[str, list[str]] = {}
    for name in dict.fromkeys(found):
        plain.setdefault(_plain(name), []).append(name)
    chosen = {part: _column(source, part, hint, found, plain) for part, hint in hints.items()}
    missing = [part for part, name in chosen.items() if name is None and part not in (*OPTIONAL, *MEASURES)]
    if missing:
        raise ValueError(_missing(source, missing, found))
    return {part: name for part, name in chosen.items() if name is not None}


def refuse_missing_column(source: Path | str, name: str, hint: str, found: Sequence[str]) -> None:
    """Raise a ValueError unless the table has exactly one such column, a TypeError if it is not a name."""
    if not isinstance(name, str):
        raise TypeError(f"{named(hint)} must be the name of a column, got {name!r}.")
    if name not in found:
        raise ValueError(
            f"{source}: has no column {name!r}; it has {', '.join(found)}. Name the right one with {spelled(hint)}."
        )
    if list(found).count(name) > 1:
        raise ValueError(
            f"{source}: column {name!r} comes twice; rename or remove one, or name another with {spelled(hint)}."
        )


def _column(
    source: Path | str, part: str, hint: str | None, found: Sequence[str], plain: Mapping[str, list[str]]
) -> str | None:
    """The column that plays a part, of those ``found``, which ``plain`` has by their plain names.

    None if there is none.
    """
    if part in MEASURES and hint == LEFT_OUT:
        return None
    if hint is not None:
        refuse_missing_column(source, hint, part, found)
        return hint
    candidates = plain.get(part, [])
    candidates = candidates or [name for alias in ALIASES[part] for name in plain.get(alias, [])]
    if len(candidates) > 1:
        without = f", or do without by {spelled(part, LEFT_OUT)}" if part in MEASURES else ""
        raise ValueError(
            f"{source}: {part} could be {' or '.join(candidates)}; choose with {spelled(part, candidates[0])}{without}."
        )
    if candidates:
        refuse_missing_column(source, candidates[0], part, found)
        return candidates[0]
    return None


def _missing(source: Path | str, parts: Sequence[str], found: Sequence[str]) -> str:
    """What to do about columns that are not there, in one message."""
    random = [name for name in found if _plain(name) in RANDOM_IDS] if "prompt" in parts else []
    note = f" ({random[0]} is drawn anew at every step, so it names no prompt)" if random else ""
    it = "it" if len(parts) == 1 else "them"
    means = " If rows are means per step, log every completion instead." if list(parts) == ["prompt"] else ""
    close = {part: next(iter(get_close_matches(part, found, 1)), None) for part in parts}
    known = "; ".join(f"one of {', '.join((part, *ALIASES[part]))}" for part in parts)
    return (
        f"{source}: no {' and no '.join(parts)} column; it has {', '.join(found)}{note}. "
        "Every row must be a completion, or a group with a list of rewards. "
        f"Name {it} with {', '.join(spelled(part, close[part]) for part in parts)}, or call {it} {known}.{means}"
    )


def _plain(name: str) -> str:
    return name.strip().casefold().replace(" ", "_").replace("-", "_")
