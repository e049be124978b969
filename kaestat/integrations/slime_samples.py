"""slime's samples as completions, groups and steps, and prompts drawn for them by their predicted values."""

import copy
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from kaestat.integrations.shared.tracked_sampler import TrackedSampler
from kaestat.sampling import PromptSampler

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


CORRECTION_KEY = "kaestat_correction"  # in Sample.metadata: factor of the advantage, from the draw of the prompt
COUNTERS = ("group_index", "index", "rollout_id")  # of slime's samples: they keep the data source's type


class DrawnGroups(TrackedSampler):
    """A `TrackedSampler` of slime's data set, whose draws replace prompts in slime's groups."""

    def __init__(self, sampler: PromptSampler, ids: Sequence[Hashable], rows: Sequence[Any]):
        super().__init__(sampler, ids)
        self._rows = rows

    def redrawn(self, groups: list[list[Any]], step: int | None) -> list[list[Any]]:
        """The data source's groups with drawn prompts; groups from its buffer are unchanged."""
        fresh = [place for place, group in enumerate(groups) if CORRECTION_KEY not in (group[0].metadata or {})]
        if not fresh:
            return groups
        if step is None:
            raise ValueError(
                "kaestat_prompt_sampler: a draw needs the rollout's number; pass --rollout-function-path "
                "kaestat.integrations.slime.generate_rollout, or wrap yours with_step."
            )
        groups = list(groups)
        for place, (name, factor) in zip(fresh, self.draw_groups(step, len(fresh)), strict=True):
            groups[place] = [self._sample(name, factor, given) for given in groups[place]]
        return groups

    def _sample(self, name: Hashable, factor: float, given: Any) -> Any:
        sample = copy.deepcopy(self._rows[self.row[name]])
        for counter in COUNTERS:
            if hasattr(given, counter):
                setattr(sample, counter, getattr(given, counter))
        sample.metadata = {**(sample.metadata or {}), CORRECTION_KEY: factor}
        return sample


def corrections(samples: Sequence[Any]) -> np.ndarray:
    """The factor of each sample's advantage; a ValueError if a sample was not drawn."""
    factors = [(sample.metadata or {}).get(CORRECTION_KEY) for sample in samples]
    if any(factor is None for factor in factors):
        raise ValueError(
            "kaestat_prompt_sampler: samples have no correction, so their prompts were not drawn. Pass "
            "--data-source-path kaestat.integrations.slime.DataSource (or data_source(...) of your RewardPostProcess), "
            "and let your rollout function keep the samples' metadata."
        )
    return np.array(factors, dtype=float)
