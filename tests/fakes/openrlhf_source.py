"""What of OpenRLHF 0.11.2 its recipe touches, written out in short from its source, for environments without it.

`modules` puts it where OpenRLHF's own modules are; with OpenRLHF installed the tests use the real ones instead.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace

import torch

from tests.fakes.modules import add_module


@dataclass
class Experience:
    """openrlhf.trainer.ppo_utils.experience: a micro-batch; the fields that the recipe reads and writes."""

    action_mask: torch.Tensor = None
    returns: torch.Tensor = None
    advantages: torch.Tensor = None
    kl: torch.Tensor = None
    rewards: torch.Tensor = None
    truncated: torch.Tensor = None
    index: list = None
    prompts: list = field(default_factory=list)
    images: list = field(default_factory=list)
    info: dict = field(default_factory=dict)


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

    def get_cumulative_returns(self, rewards, action_mask, gamma):
        assert gamma == 1.0
        return (rewards * action_mask).flip(1).cumsum(dim=1).flip(1)


class PPOTrainer:
    """openrlhf.trainer.ppo_trainer: the calls around checkpoints; the tests replace the others."""

    def save_logs_and_checkpoints(self, global_step, logs_dict=None, client_states=None):
        pass

    def save_best_checkpoint(self, eval_metrics, global_step, client_states=None):
        pass

    def init_checkpoint_states(self):
        return self.actor_model_group.async_run_method(method_name="get_checkpoint_states")[0]


def modules():
    """sys.modules entries under OpenRLHF's names."""
    made = {}
    actor = SimpleNamespace(__ray_metadata__=SimpleNamespace(modified_class=PPOTrainer))
    add_module(made, "openrlhf.models.utils", compute_reward=compute_reward)
    add_module(made, "openrlhf.trainer.ppo_utils.length_penalty", apply_length_penalties=apply_length_penalties)
    add_module(made, "openrlhf.trainer.ppo_utils.experience", Experience=Experience)
    add_module(made, "openrlhf.trainer.ppo_utils.experience_maker", RemoteExperienceMaker=RemoteExperienceMaker)
    add_module(made, "openrlhf.trainer.ppo_trainer", PPOTrainer=actor)
    add_module(made, "openrlhf.trainer.ppo_trainer_async", PPOTrainerAsync=None)
    return made
