"""verl's deprecated trainer (``trainer.use_v1=False``) with a history.

verl knows no names for trainers there: importing this module puts `LegacyBaselineTrainer` where its main program looks
for one. With an ``algorithm.adv_estimator`` that is none of ours it is verl's trainer, unchanged.

The ids come from ``non_tensor_batch`` (``extra_info``, ``data_source``, ``raw_prompt``) when verl draws a batch of
prompts; the rows find them again by verl's random ``uid``, which lasts as long as the step.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from verl import DataProto
from verl.trainer import main_ppo_v0
from verl.trainer.ppo.ray_trainer import RayPPOTrainer

from kaestat.integrations.shared.tracked_estimator import TrackedEstimator
from kaestat.integrations.verl.checkpoint import SavesHistory
from kaestat.integrations.verl.completion_weights import check_actor, token_norms
from kaestat.integrations.verl.estimators import REGISTERED, SERVING
from kaestat.integrations.verl.options import Options, refuse_sampler_beside
from kaestat.integrations.verl.prompts import FIELDS, Prompt, read_prompt
from kaestat.integrations.verl.rows import BatchRows, row_advantages, row_weights


class LegacyBaselineTrainer(SavesHistory, RayPPOTrainer):
    """verl's ``RayPPOTrainer`` whose advantages come from a method of ours, history included.

    Parameters
    ----------
    config : DictConfig
    *args, **kwargs
        Those of ``RayPPOTrainer``.

    Raises
    ------
    ValueError
        If an option, a parameter or the method cannot be used, or the actor does not compute what the weights take.
    """

    def __init__(self, config: Any, *args: Any, **kwargs: Any):
        method = REGISTERED.get(str(config.algorithm.adv_estimator))
        if method is not None:
            self.options = Options.read(method, config.algorithm)
            self.options.refuse_sampler("the deprecated trainer")
            self.options.refuse_turns("the deprecated trainer")
            self.baseline = TrackedEstimator(self.options.estimator())
            if self.options.weights == "score_norm":
                check_actor(config, "kaestat.weights=score_norm")
        else:
            refuse_sampler_beside(config.algorithm)
        self._prompts: dict[Hashable, Prompt] = {}
        self._norms: torch.Tensor | None = None
        super().__init__(config, *args, **kwargs)

    def fit(self) -> None:
        """verl's training loop."""
        if self.baseline is None:
            return super().fit()
        token = SERVING.set(self._serve)
        try:
            return super().fit()
        finally:
            SERVING.reset(token)

    def _get_gen_batch(self, batch: DataProto) -> DataProto:
        options = self.options
        if options is not None:
            known = batch.non_tensor_batch
            columns = [known.get(name, [None] * len(known["uid"])) for name in FIELDS]
            self._prompts = {
                uid: read_prompt(options.prompt_id, *fields)
                for uid, *fields in zip(known["uid"], *columns, strict=True)
            }
        return super()._get_gen_batch(batch)

    def _compute_old_log_prob(self, batch: DataProto) -> Any:
        found = super()._compute_old_log_prob(batch)
        if self.options is not None and self.options.weights == "score_norm":
            known = [name for name in ("response_mask", "rollout_log_probs") if name in batch.batch.keys()]
            self._norms = token_norms(batch.select(batch_keys=known).union(found[0]), self.config.algorithm)
        return found

    def _serve(self, index: Sequence[Hashable] | None, rewards: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        uids = tuple(() if index is None else index)
        unknown = [uid for uid in uids if uid not in self._prompts]
        if unknown or not uids:
            raise ValueError("index: verl computes advantages of rows that were not drawn at this step.")
        assert self.baseline is not None and self.options is not None  # served only then
        rows = BatchRows(
            uids=uids,
            prompts=tuple(self._prompts[uid] for uid in uids),
            final=np.arange(len(uids)),
            padding=np.zeros(len(uids), dtype=bool),
        )
        weights = row_weights(self.options.weights, mask, self._norms)
        sums = rewards.sum(dim=-1)
        return row_advantages(self.baseline, rows, self.global_steps - 1, index, sums, weights).unsqueeze(-1)


main_ppo_v0.RayPPOTrainer = LegacyBaselineTrainer
