"""slime's samples as completions, groups and steps."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

# In Sample.metadata: slime does not pass the rollout's number to the reward hook,
STEP_KEY = "kaestat_step"
# nor the data set's prompt, where the segments of a rollout (sub-agents) have prompts of their own.
PROMPT_KEY = "kaestat_prompt"


def prompt_of(sample: Any) -> Any:
    """The data set's prompt if the sample holds it, otherwise the sample's own."""
    return (sample.metadata or {}).get(PROMPT_KEY, sample.prompt)


def completions_of(samples: list[Any], raw: list[float | None]) -> tuple[list[int], np.ndarray]:
    """The row of each completion's first segment, and the completion of each row."""
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
        if raw[begun] != raw[row] or prompt_of(samples[begun]) != prompt_of(sample):
            raise ValueError(
                f"samples {begun} and {row} are segments of rollout {rollout}, but their rewards or prompts differ; "
                "give every segment the outcome's reward, or each completion its own rollout_id. Where agents have "
                "prompts of their own, pass --data-source-path kaestat.integrations.slime.DataSource, which writes the "
                "data set's prompt into the metadata of every sample, and let the segments keep their metadata."
            )
    return first, completion


def tokens_in_loss(sample: Any) -> int:
    """The number of a sample's tokens in slime's loss."""
    if sample.remove_sample:
        return 0
    return sample.response_length if sample.loss_mask is None else sum(sample.loss_mask)


def with_prompts(groups: list[list[Any]]) -> list[list[Any]]:
    """The data source's groups, with their prompts in the samples' metadata."""
    for sample in flat(groups):
        sample.metadata = {PROMPT_KEY: sample.prompt} | (sample.metadata or {})
    return groups


def groups_of(samples: list[Any]) -> list[Hashable] | None:
    """slime's groups, unless the rollout function omitted them."""
    groups = [sample.group_index for sample in samples]
    return None if any(group is None for group in groups) else groups


def group_of(sample: Any) -> Hashable:
    """slime's number of a sample's group, or the sample itself where there is none."""
    return ("sample", id(sample)) if sample.group_index is None else sample.group_index


def step_of(samples: list[Any]) -> int | None:
    """The step on all samples; None if there is none, and a ValueError if there are several."""
    steps = {(sample.metadata or {}).get(STEP_KEY) for sample in samples}
    if len(steps) > 1:
        raise ValueError(
            f"samples of steps {sorted(steps, key=str)} in one rollout: wrap the outermost rollout function with_step, "
            "so that every sample carries the step at which it is trained on."
        )
    step = steps.pop() if steps else None
    return None if step is None else int(step)


def flat(samples: Any) -> Iterator[Any]:
    """The samples in nested lists."""
    for sample in samples:
        if isinstance(sample, list):
            yield from flat(sample)
        else:
            yield sample


def with_metrics(output: Any, metrics: dict[str, float]) -> Any:
    """A rollout function's output with metrics added; a plain list of samples becomes slime's output object."""
    if not hasattr(output, "metrics"):
        from slime.rollout.base_types import RolloutFnTrainOutput

        output = RolloutFnTrainOutput(samples=output)
    output.metrics = {**(output.metrics or {}), **metrics}
    return output
