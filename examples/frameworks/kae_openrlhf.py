"""Baselines of kaestat in OpenRLHF, tested with 0.11.2 and commit 3c3be62 of its main branch.

Copy this file, choose the method below, and run it in place of ``openrlhf.cli.train_ppo_ray``::

    python kae_openrlhf.py --algo.advantage.estimator reinforce --rollout.n_samples_per_prompt 8 ...

It replaces where the experience maker computes advantages, and the trainer around it, which knows the step. Each
checkpoint has its history beside it. The id of a prompt is a hash of its text and its images' paths.
"""

import runpy
from itertools import chain

import numpy as np
import ray
import torch
from openrlhf.models.utils import compute_reward
from openrlhf.trainer import ppo_trainer, ppo_trainer_async
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.trainer.ppo_utils.length_penalty import apply_length_penalties

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.session import TrainerSession


class BaselineMaker(RemoteExperienceMaker):
    def compute_advantages_and_returns(self, experiences):
        """Advantages and returns of the micro-batches of one step, in place."""
        args, mine = self.strategy.args, chain.from_iterable
        apply_length_penalties(experiences, args)
        found = self.session.advantages(
            torch.cat([each.rewards for each in experiences]).float().cpu().numpy(),
            self.step,
            prompts=list(mine(zip(e.prompts, e.images or [None] * len(e.prompts), strict=True) for e in experiences)),
            groups=[row // args.rollout.n_samples_per_prompt for row in mine(e.index for e in experiences)],
        )
        ends = np.cumsum([len(each.index) for each in experiences])[:-1]
        for each, own in zip(experiences, np.split(found, ends), strict=True):
            own = torch.as_tensor(own, dtype=torch.float32, device=each.kl.device)
            reward = compute_reward(own, self.kl_ctl.value, each.kl, each.action_mask, args.reward.clip_range)
            each.returns = self.get_cumulative_returns(reward, each.action_mask, 1.0)
            each.advantages, each.kl = each.returns.clone(), None
            each.info["return"] = reward.sum(dim=-1)
        return experiences


class BaselineTrainer(ppo_trainer.PPOTrainer.__ray_metadata__.modified_class):  # nobody may inherit from Ray's actor
    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.session = self.experience_maker.session = TrainerSession(AdvantageEstimator())
        self.experience_maker.__class__ = BaselineMaker
        if self.args.train.async_enable or self.args.algo.dynamic_filtering_enable:
            raise ValueError("leave async_enable and dynamic_filtering_enable out: the history does not see all.")

    def train_step(self, rollout_samples, global_step):
        self.experience_maker.step = global_step
        status, step = super().train_step(rollout_samples, global_step)
        return {**status, **self.session.metrics}, step

    def save_logs_and_checkpoints(self, global_step, *given, **options):
        if global_step % self.args.ckpt.save_steps == 0:
            self.session.save(f"{self.args.ckpt.path}/kaestat/{global_step}")
        super().save_logs_and_checkpoints(global_step, *given, **options)

    def save_best_checkpoint(self, eval_metrics, global_step, *given, **options):
        self.session.save(f"{self.args.ckpt.path}/kaestat/{global_step}")
        super().save_best_checkpoint(eval_metrics, global_step, *given, **options)

    def init_checkpoint_states(self):
        states = super().init_checkpoint_states()
        if states["global_step"] > 0:
            self.session.load(f"{self.args.ckpt.path}/kaestat/{states['global_step']}")
        return states


if __name__ == "__main__":
    ppo_trainer.PPOTrainer = ppo_trainer_async.PPOTrainerAsync = ray.remote(BaselineTrainer)
    runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__")
