"""A JSON object of accuracy sequences, ``{"prompt": [0.25, ...]}``: one number per prompt and visit."""

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from kaestat.core.checks import check_whole
from kaestat.core.spelling import named, spelled
from kaestat.logs.columns import warn
from kaestat.logs.labels import Labels
from kaestat.logs.readers.json_file import load_json
from kaestat.logs.readers.text_file import has_suffix
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.table import drops

MAX_GROUP_SIZE = 64
_LARGEST = 10**9  # completions per visit; the product with an accuracy must be a float
_EXACT = 1e-6
_ROUNDED = 0.05  # successes may be off a whole number by this where the group size is given: 0.33 of 3 is 0.99


def recognises(path: Path) -> bool:
    """Whether the path has the name of a JSON file."""
    return path.is_file() and has_suffix(path, ".json")


def read_accuracies(path: Path, *, group_size: int | None = None, missing: str = "refuse") -> RewardLog:
    """The log in a file of accuracies; each one becomes the successes and failures of one group.

    The visit index stands in for the step. ``group_size`` is the number of completions per visit; None infers the
    smallest one up to 64 that makes all accuracies whole multiples of 1 / G. Given, it also allows accuracies rounded
    to two digits. Successes and failures get a random order, the same at every reading: sorted rewards would mislead
    ``krpo``.
    """
    sequences = _load(path)
    n_missing = sum(accuracies.count(None) for accuracies in sequences.values()) if drops(missing) else 0
    if n_missing:
        warn(f"{path}: {n_missing:,} visits without an accuracy are left out; later ones move up.")
        sequences = {
            prompt: [each for each in accuracies if each is not None] for prompt, accuracies in sequences.items()
        }
    lengths = np.fromiter(map(len, sequences.values()), dtype=np.int64, count=len(sequences))
    accuracy = _accuracies(path, sequences, lengths)
    size = _infer(path, accuracy) if group_size is None else _check(path, accuracy, group_size)
    successes = np.rint(accuracy * size)
    ordered = np.arange(size) < successes[:, None]
    reward = np.random.default_rng(0).permuted(ordered, axis=1).astype(float)
    visit = np.arange(len(accuracy)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    prompt = Labels.of_coded(np.repeat(np.arange(len(sequences)), lengths * size), sequences)
    log = RewardLog.of_labels(prompt, np.repeat(visit, size), reward.reshape(-1), time_axis="visit")
    log.group_size_inferred, log.ungraded = group_size is None, n_missing
    return log


def _load(path: Path) -> dict[str, list[Any]]:
    content = load_json(path, parse_int=float)  # one of thousands of digits is an error to Python
    if not isinstance(content, dict) or not all(isinstance(sequence, list) for sequence in content.values()):
        raise ValueError(
            f'{path}: must be a JSON object of accuracy lists, {{"prompt": [0.25, ...]}}. A table of '
            "completions is format 'records', or CSV, JSONL or Parquet."
        )
    if not any(content.values()):
        raise ValueError(f"{path}: holds no accuracies.")
    return content


def _accuracies(path: Path, sequences: dict[str, list[Any]], lengths: np.ndarray) -> np.ndarray:
    """All accuracies in a row, checked."""
    values = list(chain.from_iterable(sequences.values()))
    valid = (isinstance(value, int | float) and 0 <= value <= 1 for value in values)
    bad = next((i for i, is_valid in enumerate(valid) if not is_valid), None)
    if bad is not None:
        ends = np.cumsum(lengths)
        which = int(np.searchsorted(ends, bad, side="right"))
        visit = bad - int(ends[which] - lengths[which])
        fix = "Accuracies are fractions, not percentages"
        if values[bad] is None:
            fix = f"Leave such visits out by {spelled('missing', 'drop')}, or write a long table with their steps"
        elif isinstance(values[bad], list | dict):
            fix = 'Write one completion per line, {"prompt": "a", "step": 0, "reward": 1}, and call the file .jsonl'
        raise ValueError(
            f"{path}: prompt {list(sequences)[which]!r}, visit {visit}: an accuracy must be a number in [0, 1], got "
            f"{values[bad]!r:.60}. {fix}."
        )
    return np.array(values, dtype=float)


def _misfit(accuracy: np.ndarray, size: int) -> np.ndarray:
    return np.abs(accuracy * size - np.rint(accuracy * size))


def smallest_group_size(distinct: np.ndarray) -> int | None:
    """The smallest G up to `MAX_GROUP_SIZE` that makes all accuracies whole multiples of 1/G; None if none does."""
    fits = (size for size in range(1, MAX_GROUP_SIZE + 1) if _misfit(distinct, size).max() <= _EXACT)
    return next(fits, None)


def _infer(path: Path, accuracy: np.ndarray) -> int:
    distinct = np.unique(accuracy)
    size = smallest_group_size(distinct)
    if size is None:
        raise ValueError(
            f"{path}: no group size up to {MAX_GROUP_SIZE} makes all accuracies whole numbers of successes "
            f"(they start {', '.join(f'{a:g}' for a in distinct[:4])}). Pass {spelled('group_size')}; it "
            "allows rounded accuracies."
        )
    if size == 1:
        raise ValueError(f"{path}: all accuracies are 0 or 1, so any group size fits. Pass {spelled('group_size')}.")
    return size


def _check(path: Path, accuracy: np.ndarray, size: int) -> int:
    size = check_whole(named("group_size"), size, most=_LARGEST)
    misfit = _misfit(accuracy, size)
    if misfit.max() > _ROUNDED:
        worst = accuracy[int(np.argmax(misfit))]
        raise ValueError(
            f"{path}: {spelled('group_size', size)} does not fit: accuracy {worst:g} would be "
            f"{worst * size:g} successes of {size}."
        )
    return size
