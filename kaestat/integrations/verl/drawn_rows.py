"""Rows of verl's data set, drawn by their prompts' predicted values."""

import uuid
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from verl.utils.dataset.rl_dataset import collate_fn

from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.shared.tracked_sampler import TrackedSampler
from kaestat.integrations.verl.options import Options, filters_groups
from kaestat.integrations.verl.prompts import FIELDS, read_prompt
from kaestat.integrations.verl.rows import BatchRows
from kaestat.sampling import PromptSampler


class DrawnRows(TrackedSampler):
    """Batches of prompts for verl's agent loops, and the corrections of the returned rows."""

    def __init__(self, sampler: PromptSampler, dataset: Any, ids: Sequence[Hashable]):
        super().__init__(sampler, ids)
        self._dataset = dataset
        self._factor: dict[Hashable, float] = {}
        self._step = -1

    def batch(self, n_groups: int, step: int) -> dict[str, Any]:
        """So many groups for a step, collated, each with a new uid."""
        if step != self._step:
            self._factor, self._step = {}, step
        groups = self.draw_groups(step, n_groups)
        uids = np.array([str(uuid.uuid4()) for _ in groups], dtype=object)
        self._factor.update((uid, factor) for uid, (_, factor) in zip(uids, groups, strict=True))
        return {**collate_fn([self._dataset[self.row[name]] for name, _ in groups]), "uid": uids}

    def corrections_of(self, rows: BatchRows) -> torch.Tensor:
        """Factor of each row's advantage, (N,); 0 for padding. A ValueError if a group was not drawn now."""
        drawn = [uid for uid, prompt in zip(rows.uids, rows.prompts, strict=True) if prompt is not None]
        unknown = [uid for uid in drawn if uid not in self._factor]
        if unknown:
            raise ValueError(
                f"prompt_sampler: group {unknown[0]!r} was not drawn at this step; a part of verl fetches prompts "
                "past the trainer."
            )
        return torch.tensor([self._factor.get(uid, 0.0) for uid in rows.uids])


def draw_rows(options: Options, session: TrainerSession, config: Any, dataset: Any) -> DrawnRows | None:
    """The `DrawnRows` of a training set, if the options ask for it; None otherwise."""
    if options.prompt_sampler is None:
        return None
    rows = (dataset[row] for row in range(len(dataset)))
    ids = [read_prompt(options.prompt_id, *(row.get(name) for name in FIELDS)).id for row in rows]
    size = config.actor_rollout_ref.rollout.n
    sampler = session.sampler(
        options.prompt_sampler,
        ids,
        budget=config.data.train_batch_size * size,
        group_size=size,
        seed=config.data.get("seed", None) or 0,
        params=options.sampler_params,
        filtered="algorithm.filter_groups" if filters_groups(config) else "",
    )
    drawn = session.drawn = DrawnRows(sampler, dataset, ids)
    return drawn
