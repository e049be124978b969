"""What of OpenRLHF 0.11.2 the adapter touches, written out in short from its source, for environments without it.

`modules` puts it where OpenRLHF's own modules are; with OpenRLHF installed the tests use the real ones instead.
"""

import os
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain

import ray
import torch

from tests.fakes.modules import add_module


@dataclass
class Experience:
    """openrlhf.trainer.ppo_utils.experience: a micro-batch; the fields that exist before the policy update."""

    sequences: torch.Tensor = None
    attention_mask: torch.Tensor = None
    action_mask: torch.Tensor = None
    action_log_probs: torch.Tensor = None
    returns: torch.Tensor = None
    advantages: torch.Tensor = None
    kl: torch.Tensor = None
    rewards: torch.Tensor = None
    scores: torch.Tensor = None
    response_length: torch.Tensor = None
    truncated: torch.Tensor = None
    total_length: torch.Tensor = None
    index: list = None
    prompts: list = field(default_factory=list)
    labels: list = field(default_factory=list)
    images: list = field(default_factory=list)
    mm_train_inputs: list = field(default_factory=list)
    info: dict = field(default_factory=dict)

    @staticmethod
    def _merge(items):
        if items[0] is None:
            return None
        if isinstance(items[0], torch.Tensor):
            width = max(item.shape[-1] for item in items)
            return torch.cat([torch.nn.functional.pad(item, (0, width - item.shape[-1])) for item in items])
        if isinstance(items[0], list):
            return list(chain.from_iterable(items))
        return {key: Experience._merge([item[key] for item in items]) for key in items[0]}

    @staticmethod
    def concat_experiences(experiences, pad_token_id):
        names = [f.name for f in fields(Experience)]
        return Experience(**{name: Experience._merge([getattr(e, name) for e in experiences]) for name in names})


def apply_length_penalties(experiences, args):
    """openrlhf.trainer.ppo_utils.length_penalty: the ProRL penalty alone."""
    for experience in experiences:
        if args.reward.stop_properly_penalty_coef is not None:
            cut = experience.truncated.bool()
            experience.rewards[cut] *= args.reward.stop_properly_penalty_coef


def compute_reward(r, kl_coef, kl, action_mask=None, reward_clip_range=None):
    """openrlhf.models.utils: the reward at the last action token, less the KL penalty at every token."""
    if reward_clip_range:
        r = r.clamp(*reward_clip_range)
    end = action_mask.size(1) - 1 - action_mask.long().fliplr().argmax(dim=1, keepdim=True)
    return torch.zeros_like(kl).scatter_(1, end, r.unsqueeze(1).to(kl.dtype)) - max(kl_coef, 0.0) * kl


class RemoteExperienceMaker:
    """openrlhf.trainer.ppo_utils.experience_maker."""

    def __init__(self, actor, critic, reward_model, initial_model, kl_controller, strategy, tokenizer, **kwargs):
        self.strategy, self.args, self.kl_ctl, self.tokenizer = strategy, strategy.args, kl_controller, tokenizer
        self.actor_model_group = actor
        self.advantage_estimator = strategy.args.algo.advantage.estimator

    def split_rollout_samples(self, rollout_samples):
        for place, sample in enumerate(rollout_samples):
            sample.index = [place]
        size = self.args.rollout.micro_batch_size
        cuts = range(0, len(rollout_samples), size)
        return [Experience.concat_experiences(rollout_samples[cut : cut + size], 0) for cut in cuts]

    def make_experience_batch(self, rollout_samples):
        return self.compute_advantages_and_returns(self.make_experience(self.split_rollout_samples(rollout_samples)))

    def make_experience(self, samples_list):
        found = self.actor_model_group.async_run_method_batch(
            method_name="forward", action_mask=[s.action_mask for s in samples_list]
        )
        for samples, (log_probs,) in zip(samples_list, found, strict=True):
            samples.action_log_probs, samples.kl = log_probs, torch.zeros_like(log_probs)
        return samples_list

    def compute_advantages_and_returns(self, experiences):
        args = self.strategy.args
        for experience in experiences:
            experience.rewards = experience.rewards.to(torch.promote_types(experience.rewards.dtype, torch.float32))
        apply_length_penalties(experiences, args)
        sizes = [len(experience.index) for experience in experiences]
        indices = torch.tensor(list(chain.from_iterable(e.index for e in experiences)))
        raw = torch.cat([experience.rewards for experience in experiences])
        rewards = torch.empty_like(raw)
        rewards[indices] = raw
        size = args.rollout.n_samples_per_prompt
        rewards = rewards.reshape(-1, size)
        spread = rewards.std(-1, keepdim=True).repeat(1, size).reshape(-1)[indices].split(sizes)
        if args.algo.advantage.estimator == "rloo":
            rewards = rewards - (rewards.sum(-1, keepdim=True) - rewards) / (size - 1)
        elif args.algo.advantage.estimator == "dr_grpo":
            rewards = rewards - rewards.mean(-1, keepdim=True)
        elif args.algo.advantage.estimator == "group_norm":
            rewards = (rewards - rewards.mean(-1, keepdim=True)) / (rewards.std(-1, keepdim=True) + 1e-9)
        for experience, reward, std in zip(experiences, rewards.reshape(-1)[indices].split(sizes), spread, strict=True):
            experience.info["group_reward_std"] = std
            reward = compute_reward(
                reward, self.kl_ctl.value, experience.kl, experience.action_mask, args.reward.clip_range
            )
            experience.returns = self.get_cumulative_returns(reward, experience.action_mask, 1.0)
            experience.advantages = experience.returns.clone()
            experience.info["return"] = reward.sum(dim=-1)
            experience.kl = None
        return experiences

    def get_cumulative_returns(self, rewards, action_mask, gamma):
        assert gamma == 1.0
        return (rewards * action_mask).flip(1).cumsum(dim=1).flip(1)


class BasePPOTrainer:
    """openrlhf.trainer.ppo_trainer: the calls around a step and around checkpoints."""

    def train_step(self, rollout_samples, global_step):
        experiences = self.experience_maker.make_experience_batch(rollout_samples)
        self.actor_model_group.async_run_method_batch(method_name="append", experience=experiences)
        status = self.ppo_train(global_step)
        return status, global_step + 1

    def save_logs_and_checkpoints(self, global_step, logs_dict=None, client_states=None):
        if global_step % self.args.ckpt.save_steps == 0:
            self.actor_model_group.async_run_method(
                method_name="save_checkpoint", tag=f"global_step{global_step}", client_states=client_states
            )

    def save_best_checkpoint(self, eval_metrics, global_step, client_states=None):
        if eval_metrics.get(self.best_eval_metric_key, float("-inf")) > self.best_eval_metric_value:
            self.best_eval_metric_value = eval_metrics[self.best_eval_metric_key]
            self.actor_model_group.async_run_method(
                method_name="save_checkpoint", tag=f"best_global_step{global_step}", client_states=client_states
            )

    def init_checkpoint_states(self):
        if self.args.ckpt.load_enable and os.path.exists(os.path.join(self.args.ckpt.path, "_actor")):
            return self.actor_model_group.async_run_method(method_name="get_checkpoint_states")[0]
        return {"episode": 0, "global_step": 0, "total_consumed_prompts": 0, "data_loader_state_dict": {}}


def modules():
    """sys.modules entries under OpenRLHF's names."""

    @ray.remote
    class PPOTrainer(BasePPOTrainer):
        def __init__(self, *args, **kwargs):
            raise AssertionError("the tests replace it: it loads data sets and models")

    found = {}
    add = partial(add_module, found)

    add("openrlhf.models.utils", compute_reward=compute_reward)
    add("openrlhf.trainer.ppo_utils.length_penalty", apply_length_penalties=apply_length_penalties)
    add("openrlhf.trainer.ppo_utils.experience", Experience=Experience)
    add("openrlhf.trainer.ppo_utils.experience_maker", RemoteExperienceMaker=RemoteExperienceMaker, ray=ray)
    add("openrlhf.trainer.ppo_trainer", PPOTrainer=PPOTrainer, BasePPOTrainer=BasePPOTrainer, ray=ray)
    add("openrlhf.trainer.ppo_trainer_async", PPOTrainerAsync=None)
    return found
