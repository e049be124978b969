"""Weights of completions from the actor's own update.

A step's advantages are computed before its norms are known. They use the weights that completions with the same rewards
had at earlier steps (`expected_suffice` says for which values that is enough). The actor's workers
(`kaestat.integrations.verl.norms_worker`) take the norms in the update, and they are recorded after it.
"""

import warnings
from typing import Any

import numpy as np
import ray
import torch
from transfer_queue import KVBatchMeta
from verl.trainer.distillation import is_distillation_enabled
from verl.trainer.ppo.utils import Role

from kaestat.integrations.backward_norms import not_zero
from kaestat.integrations.gradient_norms import usable_weights
from kaestat.integrations.shared.weights import LARGEST_GROUP, expected_suffice
from kaestat.integrations.verl.checkpoint import SavesHistory
from kaestat.integrations.verl.norms_worker import ASKED, NormsWorker
from kaestat.integrations.verl.options import WEIGHTS_OPTION, filters_groups
from kaestat.integrations.verl.rows import BatchRows, row_advantages

_PARTS_OF_ROWS = "ulysses_sequence_parallel_size"


def check_update(config: Any, weights: str, estimator: Any, verl_mode: str) -> None:
    """Raise a ValueError for a configuration whose update does not give the norms of its completions' scores.

    The update must be one step of the optimiser on completions of one policy, the loss must be advantages times
    log-probabilities, and the engine must be the one supported here.
    """
    actor, model, algorithm = config.actor_rollout_ref.actor, config.actor_rollout_ref.model, config.algorithm
    prefix, group_size = "actor_rollout_ref.", config.actor_rollout_ref.rollout.n  # no weight changes rloo in pairs
    correction = algorithm.get("rollout_correction", None) or {}
    engine = actor.get("fsdp_config", None) or {}
    precision = (engine.get("mixed_precision", None) or {}).get("param_dtype", "bf16")
    for wrong, remedy in (
        (verl_mode != "sync", "trainer.v1.trainer_mode=kaestat_sync"),
        (group_size == 2 or not expected_suffice(estimator.baseline, group_size), f"{prefix}rollout.n=1 and an "
         f"algorithm.adv_estimator with a history, such as kae_eb, or kaestat_rloo and a rollout.n of 3 to "
         f"{LARGEST_GROUP}"),
        (actor.strategy != "fsdp2", f"model_engine=dp and {prefix}actor.strategy=fsdp2"),
        (actor.ppo_mini_batch_size != config.data.train_batch_size, f"{prefix}actor.ppo_mini_batch_size="
         f"data.train_batch_size={config.data.train_batch_size}"),
        (actor.entropy_coeff != 0, f"{prefix}actor.entropy_coeff=0"),
        (actor.use_kl_loss, f"{prefix}actor.use_kl_loss=False"),
        (actor.policy_loss.get("loss_mode", "vanilla") != "vanilla", f"{prefix}actor.policy_loss.loss_mode=vanilla"),
        (actor.get("use_prefix_grouper", False), f"{prefix}actor.use_prefix_grouper=False"),
        (engine.get("offload_policy", False), f"{prefix}actor.fsdp_config.offload_policy=False"),
        ((model.get("mtp", None) or {}).get("enable", False), f"{prefix}model.mtp.enable=False"),
        (max(each.get(_PARTS_OF_ROWS, 1) for each in (actor, engine)) > 1, f"{prefix}actor.{_PARTS_OF_ROWS}=1"),
        (str(precision) in ("fp16", "float16"), f"{prefix}actor.fsdp_config.mixed_precision.param_dtype=bf16"),
        (correction.get("bypass_mode", False), "algorithm.rollout_correction.bypass_mode=False"),
        (filters_groups(config), "algorithm.filter_groups.enable=False"),
        (config.trainer.critic_warmup > 0, "trainer.critic_warmup=0"),
        (is_distillation_enabled(config.get("distillation")), "distillation.enabled=False"),
    ):  # fmt: skip
        if wrong:
            raise ValueError(
                f"{WEIGHTS_OPTION}={weights} takes norms from the actor's update, which needs {remedy}; or take "
                f"{WEIGHTS_OPTION}=score_norm."
            )


class RecordsNorms(SavesHistory):
    """Mixin to put before verl's trainers, for weights that the update gives."""

    _own_actor = False  # whether the actor is ours
    _unrecorded: tuple[BatchRows, int, torch.Tensor] | None = None  # rows, step, rewards

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        if not self._own_actor:
            return
        for role in (Role.Actor, Role.ActorRollout, Role.ActorRolloutRef):
            if role in self.role_worker_mapping:
                self.role_worker_mapping[role] = ray.remote(NormsWorker)

    def _expected_advantages(
        self, rows: BatchRows, step: int, index: Any, rewards: torch.Tensor, correction: torch.Tensor | None
    ) -> torch.Tensor:
        """Advantages from the weights that are expected, shape (N,), none of them 0; nothing is recorded yet."""
        assert self.session is not None and self._expected is not None  # its callers have seen them
        if (rows.final != np.arange(len(rows.final))).any():
            raise ValueError(
                f"{WEIGHTS_OPTION}={self.session.weights}: an agent loop gave several outputs for a completion, whose "
                f"norms do not add up to its own; take {WEIGHTS_OPTION}=score_norm."
            )
        self._unrecorded = rows, step, rewards
        expected = torch.as_tensor(self._expected(np.nan_to_num(rewards.double().cpu().numpy())))
        advantages = row_advantages(self.session, rows, step, index, rewards, expected, record=False)
        return not_zero(advantages if correction is None else advantages * correction.to(advantages))

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        session = self.session
        if self._expected is None or session is None:
            return super()._update_actor(batch, metrics)
        batch.extra_info[ASKED] = session.weights
        try:
            batch = super()._update_actor(batch, metrics)
        finally:
            del batch.extra_info[ASKED]
        of_ranks = sorted(self.actor_rollout_wg.row_norms(), key=lambda found: found[0])
        self._record(torch.as_tensor(np.concatenate([norms for _, norms in of_ranks])))
        metrics.update(session.metrics)
        return batch

    def _record(self, norms: torch.Tensor) -> None:
        assert self.session is not None and self._expected is not None and self._unrecorded is not None
        rows, step, rewards = self._unrecorded
        plain = rewards.double().cpu().numpy()
        graded = rows.graded(plain)
        weights, known = self._expected(np.nan_to_num(plain)), norms.isfinite().numpy()
        if not known[graded].all():
            warnings.warn(
                f"{WEIGHTS_OPTION}={self.session.weights}: for {int((~known[graded]).sum())} of {graded.sum()} "
                "completions the loss is not advantage times log-probability, so the update does not give their "
                "norms. Their weights are those expected for their rewards.",
                stacklevel=2,
            )
        taken = graded & known
        if taken.any():
            usable = usable_weights(norms[taken], over_mean=self.session.weights == "adam")
            weights[taken] = usable.double().numpy()
            self._expected.add(plain[taken], weights[taken])
        row_advantages(self.session, rows, step, rows.uids, rewards, torch.as_tensor(weights))
        self._unrecorded = None

    def _load_checkpoint(self) -> Any:
        found = super()._load_checkpoint()
        if self._expected is not None:
            self.actor_rollout_wg.try_norms()
        return found
