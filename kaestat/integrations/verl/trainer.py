"""verl's V1 trainers with a history (importing this module registers them).

``trainer.v1.trainer_mode`` is ``kaestat_sync``, ``kaestat_colocate_async`` or ``kaestat_separate_async``. They are
verl's trainers, except that a `TrainerSession` gives the advantages. One batch of the actor is one step of the
estimator: a training step, or a part of it where ``parameter_sync_step`` splits it. Versions count under the
asynchronous modes, and with ``algorithm.filter_groups`` (`kaestat.integrations.verl.versions`). Groups that the replay
buffer drops are recorded if their reward is known by then.

Where an agent loop gives several outputs in a session, the final one carries the reward: it alone counts as a
completion, and its advantage goes to all outputs of the session, as verl does it for its ``grpo``.

verl's other V1 trainers refuse what needs one of these when they are made, before they start any worker.
"""

import functools
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import ray
import torch
from omegaconf import DictConfig, open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1 import (
    PPOTrainer,
    PPOTrainerColocateAsync,
    PPOTrainerSeparateAsync,
    PPOTrainerSync,
    register_trainer,
)
from verl.utils.tensordict_utils import get_tensordict

from kaestat.integrations.shared.method_checks import check_group_size
from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.verl.checkpoint import SavesHistory
from kaestat.integrations.verl.completion_weights import (
    NORMS,
    SQUARES,
    check_actor,
    stored_row_norms,
    stored_token_norms,
)
from kaestat.integrations.verl.drawn_rows import DrawnRows, draw_rows
from kaestat.integrations.verl.estimators import PREFIX, REGISTERED, SERVING, Serve, estimator_without_history
from kaestat.integrations.verl.norms_worker import NormsWorker
from kaestat.integrations.verl.options import (
    GROUP_SIZE,
    OF_PARAMETERS,
    WEIGHTS,
    WEIGHTS_OPTION,
    Options,
    filters_groups,
    refuse_sampler_beside,
)
from kaestat.integrations.verl.rows import BatchRows, completions_of, read_rows, row_advantages, row_weights
from kaestat.integrations.verl.versions import observe_dropped, row_versions, stored_rewards


class BaselineTrainer(SavesHistory):
    """Mixin to put before a V1 trainer of verl, which adds a history."""

    verl_mode = ""
    drawn: DrawnRows | None = None  # the session's
    _asks: Mapping[str, Any] = MappingProxyType({})  # of the actor, with the log-probabilities

    def __init__(self, config: DictConfig):
        # Any other name than "sync" turns verl asynchronous, whatever the class.
        with open_dict(config):
            config.trainer.v1.trainer_mode = self.verl_mode
        method = REGISTERED.get(str(config.algorithm.adv_estimator))
        if method is not None:
            self.options = Options.read(method, config.algorithm)
        if self.options is not None:
            filters, weights = filters_groups(config), self.options.weights
            estimator = self.options.estimator(any_order=filters or self.verl_mode != "sync")
            self.session = TrainerSession(estimator, weights=weights, choices=WEIGHTS, option=WEIGHTS_OPTION)
            if self.verl_mode != "sync":
                self.options.refuse_sampler(f"kaestat_{self.verl_mode}")
            if self.session.stateful and filters and not self._sees_dropped(config):
                # No logger: a dependency of vLLM sets the root logger to ERROR.
                warnings.warn(
                    "algorithm.filter_groups drops groups before the history sees them, which pulls its values towards "
                    "1/2; turn it off.",
                    stacklevel=2,
                )
            if weights in ("score_norm", *OF_PARAMETERS):
                check_actor(config, weights, self.verl_mode)
                self._asks = {SQUARES: True} if weights == "score_norm" else {NORMS: weights}
        else:
            refuse_sampler_beside(config.algorithm)
        if self.session is not None:
            self.session.check_group_size(GROUP_SIZE, config.actor_rollout_ref.rollout.n)
        super().__init__(config)
        if self._sees_dropped(config):
            observe_dropped(self.replay_buffer, self._observe_dropped)

    @property
    def estimator_step(self) -> int:
        """The estimator's step, 0-based: the number of batches before this one."""
        return (self.global_steps - 1) * self.parameter_sync_step + self.local_trigger_step

    def _sees_dropped(self, config: DictConfig) -> bool:
        """Whether groups that verl drops enter the history: only if reward and weight are known by then."""
        session, options = self.session, self.options
        if session is None or options is None or not (session.stateful and session.any_order):
            return False
        own_buffer = (config.trainer.v1.sampler.get("custom_sampler", None) or {}).get("path", None)
        judge = config.reward.reward_model
        early = not judge.enable or judge.enable_resource_pool  # a colocated one judges what has been sampled
        known = early and options.weights in ("none", "length") and not config.algorithm.use_kl_in_reward
        return bool(known and not own_buffer)

    def _observe_dropped(self, batch: KVBatchMeta) -> None:
        assert self.session is not None and self.options is not None  # else nothing is observed
        rows = read_rows(batch, self.options.prompt_id)
        rewards, lengths = stored_rewards(batch)
        columns = completions_of(self.session, rows, rewards, lengths)
        self.session.observe(rewards, self.estimator_step, version=self._versions(batch, rows), **columns)

    def _versions(self, batch: KVBatchMeta, rows: BatchRows) -> np.ndarray:
        return row_versions(batch, rows, self.parameter_sync_step, self.estimator_step)

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        if self.session is not None and self.options is not None:
            self.drawn = draw_rows(self.options, self.session, self.config, self.train_dataset)

    def _fetch_one_gen_batch(self) -> TensorDict:
        if self.drawn is None:
            return super()._fetch_one_gen_batch()
        return get_tensordict(self.drawn.batch(self.train_dataloader.batch_size, self.estimator_step))

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch.extra_info.update(self._asks)  # verl's engines look for squares, its V1 trainers never ask for them
        try:
            return super()._compute_old_log_prob(batch, metrics)
        finally:
            for name in self._asks:  # or the reference policy's would take the place of the actor's
                del batch.extra_info[name]

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        session, options = self.session, self.options
        if session is None or options is None:
            return super()._compute_advantage(batch, metrics)
        rows, step = read_rows(batch, options.prompt_id), self.estimator_step
        norms = None
        if NORMS in self._asks:
            norms = stored_row_norms(batch, rows, options.weights)
        elif SQUARES in self._asks:
            norms = stored_token_norms(batch, self.config.algorithm)
        version = self._versions(batch, rows) if session.any_order and session.stateful else None

        def serve(index: Sequence[Hashable] | None, of_tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            factor, rewards = None if self.drawn is None else self.drawn.corrections_of(rows), of_tokens.sum(dim=-1)
            weights = row_weights(options.weights, mask, norms)
            advantages = row_advantages(session, rows, step, index, rewards, weights, version)
            return (advantages if factor is None else advantages * factor.to(advantages)).unsqueeze(-1)

        batch = self._served(serve, batch, metrics)
        metrics.update(session.metrics)
        return batch

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in (Role.Actor, Role.ActorRollout, Role.ActorRolloutRef) if NORMS in self._asks else ():
            if role in self.role_worker_mapping:
                self.role_worker_mapping[role] = ray.remote(NormsWorker)

    def _load_checkpoint(self) -> Any:
        found = super()._load_checkpoint()
        if NORMS in self._asks:
            self.actor_rollout_wg.try_norms()
        return found

    def _served(self, serve: Serve, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        token = SERVING.set(serve)
        try:
            return super()._compute_advantage(batch, metrics)
        finally:
            SERVING.reset(token)


@register_trainer(PREFIX + "sync")
class SyncTrainer(BaselineTrainer, PPOTrainerSync):
    """``trainer.v1.trainer_mode=kaestat_sync``: verl's synchronous trainer with a history."""

    verl_mode = "sync"


@register_trainer(PREFIX + "colocate_async")
class ColocateAsyncTrainer(BaselineTrainer, PPOTrainerColocateAsync):
    """``trainer.v1.trainer_mode=kaestat_colocate_async``."""

    verl_mode = "colocate_async"


@register_trainer(PREFIX + "separate_async")
class SeparateAsyncTrainer(BaselineTrainer, PPOTrainerSeparateAsync):
    """``trainer.v1.trainer_mode=kaestat_separate_async``."""

    verl_mode = "separate_async"


def _checked(construct: Callable[..., None]) -> Callable[..., None]:
    """verl's constructor of trainers, which refuses settings that would otherwise fail after the first rollout."""

    @functools.wraps(construct)
    def checked(self: Any, config: DictConfig, *args: Any, **kwargs: Any) -> None:
        method = REGISTERED.get(str(config.algorithm.adv_estimator))
        if method is not None and not isinstance(self, BaselineTrainer):
            estimator = estimator_without_history(method, Options.read(method, config.algorithm))
            check_group_size(estimator, GROUP_SIZE, config.actor_rollout_ref.rollout.n)
        construct(self, config, *args, **kwargs)

    return checked


PPOTrainer.__init__ = _checked(PPOTrainer.__init__)
