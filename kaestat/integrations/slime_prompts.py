"""Prompts of slime's rollouts, drawn by their predicted values."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.integrations.shared.tracked_sampler import NO_PARAMS, TrackedSampler, sampler_of
from kaestat.sampling import Policy, PromptSampler

CORRECTION_KEY = "kaestat_correction"  # in Sample.metadata: factor of the advantage, from the draw of the prompt
STATES_KEPT = 3  # under train_async.py one more rollout is scored before the last one is saved
COUNTERS = ("group_index", "index", "rollout_id")  # of slime's samples: they stay what the data source made them


class DrawnGroups(TrackedSampler):
    """slime's groups with the prompts of a draw, each sample with its correction.

    The correction travels with the sample: groups may be finished, or come back from slime's buffer, at a later rollout
    than the one that they were drawn for.

    Parameters
    ----------
    sampler : PromptSampler
    ids : sequence of hashables
        Prompt of each row of the data set.
    rows : sequence of slime.utils.types.Sample
        slime's data set.
    """

    def __init__(self, sampler: PromptSampler, ids: Sequence[Hashable], rows: Sequence[Any]):
        super().__init__(sampler, states_kept=STATES_KEPT)
        self._row = dict(zip(ids, rows, strict=True))

    def redrawn(self, groups: list[list[Any]], step: int) -> list[list[Any]]:
        """Groups as the data source made them, with the prompts of a draw; those out of its buffer stay as they are."""
        fresh = [place for place, group in enumerate(groups) if CORRECTION_KEY not in (group[0].metadata or {})]
        if not fresh:
            return groups
        size = len(groups[fresh[0]])
        draw = self.draw(step, budget=size * len(fresh))
        names, groups = draw.rows()[::size], list(groups)
        for place, name, factor in zip(fresh, names, draw.correction_of(names).tolist(), strict=True):
            groups[place] = [self._sample(name, factor, given) for given in groups[place]]
        return groups

    def _sample(self, name: Hashable, factor: float, given: Any) -> Any:
        sample = copy.deepcopy(self._row[name])
        for counter in COUNTERS:
            if hasattr(given, counter):
                setattr(sample, counter, getattr(given, counter))
        sample.metadata = {**(sample.metadata or {}), CORRECTION_KEY: factor}
        return sample


def rows_of(data_source: Any) -> list[Any]:
    """slime's data set behind a data source.

    Raises
    ------
    ValueError
        If there is none.
    """
    dataset = getattr(data_source, "dataset", None)
    if dataset is None:
        raise ValueError("kaestat_prompt_sampler: there are no prompts to draw without slime's global data set.")
    return list(dataset.samples)


def drawn_groups(
    given: str | Policy | PromptSampler,
    args: Any,
    ids: list[Hashable],
    rows: list[Any],
    estimator: AdvantageEstimator,
    params: Mapping[str, Any] = NO_PARAMS,
) -> DrawnGroups:
    """The groups of a policy's name or of a sampler, for slime's arguments and data set.

    Raises
    ------
    ValueError
        If the sampler does not fit them, or slime chooses once more among the groups that it corrects for.
    """
    size = args.n_samples_per_prompt
    sampler = sampler_of(
        given,
        ids,
        budget=args.rollout_batch_size * size,
        group_size=size,
        estimator=estimator,
        seed=args.rollout_seed,
        params=params,
    )
    if getattr(args, "dynamic_sampling_filter_path", None) and sampler.correction != "none":
        raise ValueError(
            "--dynamic-sampling-filter-path chooses among the prompts that were drawn, which their correction does not "
            'know of. Leave it out, or draw without: kaestat_sampler_params: {correction: "none"}.'
        )
    return DrawnGroups(sampler, ids, rows)


def corrections(samples: Sequence[Any]) -> np.ndarray:
    """Factor of each sample's advantage.

    Raises
    ------
    ValueError
        If a sample was not drawn.
    """
    factors = [(sample.metadata or {}).get(CORRECTION_KEY) for sample in samples]
    if any(factor is None for factor in factors):
        raise ValueError(
            "kaestat_prompt_sampler: samples have no correction, so their prompts were not drawn. Pass "
            "--data-source-path kaestat.integrations.slime.DataSource (or data_source(...) of your RewardPostProcess), "
            "and let your rollout function keep the samples' metadata."
        )
    return np.array(factors, dtype=float)
