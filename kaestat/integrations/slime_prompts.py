"""Prompts for slime's rollouts, drawn by their predicted values."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from kaestat.integrations.shared.tracked_sampler import TrackedSampler
from kaestat.sampling import PromptSampler

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
        size, groups = len(groups[fresh[0]]), list(groups)
        draw = self.draw(step, budget=size * len(fresh))
        names = draw.rows()[::size]
        for place, name, factor in zip(fresh, names, draw.correction_of(names).tolist(), strict=True):
            groups[place] = [self._sample(name, factor, given) for given in groups[place]]
        return groups

    def _sample(self, name: Hashable, factor: float, given: Any) -> Any:
        sample = copy.deepcopy(self._rows[self.row[name]])
        for counter in COUNTERS:
            if hasattr(given, counter):
                setattr(sample, counter, getattr(given, counter))
        sample.metadata = {**(sample.metadata or {}), CORRECTION_KEY: factor}
        return sample


def dataset_of(data_source: Any) -> list[Any]:
    """slime's data set behind a data source; a ValueError if there is none."""
    dataset = getattr(data_source, "dataset", None)
    if dataset is None:
        raise ValueError("kaestat_prompt_sampler: there are no prompts to draw without slime's global data set.")
    return list(dataset.samples)


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
