"""slime's samples as completions, groups and steps."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

STEP_KEY = "kaestat_step"  # in Sample.metadata: slime does not tell the reward hook which rollout it is


def completions_of(samples: list[Any], raw: list[float | None]) -> tuple[list[int], np.ndarray]:
    """Row of each completion's first segment, and the completion of each row."""
    first: list[int] = []
    number: dict[Hashable, int] = {}
    completion = np.empty(len(samples), dtype=int)
    for row, sample in enumerate(samples):
        rollout = getattr(sample, "rollout_id", None)
        rollout = sample.index if rollout is None else rollout
        key = ("row", row) if rollout is None else ("rollout", rollout)
        if key not in number:
            number[key] = len(first)
            first.append(row)
        completion[row] = number[key]
        begun = first[number[key]]
        if raw[begun] != raw[row] or samples[begun].prompt != sample.prompt:
            raise ValueError(
                f"samples {begun} and {row} are segments of rollout {rollout}, but their rewards or prompts differ; "
                "give every segment the outcome's reward, or each completion its own rollout_id."
            )
    return first, completion


def groups_of(samples: list[Any]) -> list[Hashable] | None:
    """slime's groups, unless the rollout function left them out."""
    groups = [sample.group_index for sample in samples]
    return None if any(group is None for group in groups) else groups


def group_of(sample: Any) -> Hashable:
    """slime's number of a sample's group, or the sample itself where there is none."""
    return ("sample", id(sample)) if sample.group_index is None else sample.group_index


def step_of(samples: list[Any]) -> int | None:
    """The step that is written on all samples, if one is.

    Raises
    ------
    ValueError
        If there are several.
    """
    steps = {(sample.metadata or {}).get(STEP_KEY) for sample in samples}
    if len(steps) > 1:
        raise ValueError(
            f"samples of steps {sorted(steps, key=str)} in one rollout: wrap the outermost rollout function with_step, "
            "so that every sample carries the step at which it is trained on."
        )
    step = steps.pop() if steps else None
    return None if step is None else int(step)


def flat(samples: Any) -> Iterator[Any]:
    """Samples out of nested lists."""
    for sample in samples:
        if isinstance(sample, list):
            yield from flat(sample)
        else:
            yield sample
