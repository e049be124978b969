"""Runs of OpenRLHF's trainer without models: its data, its actors and its rollouts, written out."""

import importlib
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import torch

from kaestat import AdvantageEstimator
from kaestat.integrations.openrlhf import baseline_trainer


def kae():
    return AdvantageEstimator("kae", bandwidth=5.0)


class Generator:
    """In place of OpenRLHF's, where the test plays it itself."""


class ActorGroup:
    """Stands for openrlhf.trainer.ray.launcher.RayActorGroup: log probabilities of 0, and a record of what came."""

    def __init__(self):
        self.experiences, self.saved, self.states = None, [], None

    def async_run_method_batch(self, method_name, **kwargs):
        if method_name == "append":
            self.experiences = kwargs["experience"]
            return []
        return [[torch.zeros(mask.shape)] for mask in kwargs["action_mask"]]

    def async_run_method(self, method_name, **kwargs):
        if method_name == "save_checkpoint":
            self.saved.append(kwargs)
        return [self.states]


def arguments(**changes):
    options = {
        "algo": dict(
            advantage=SimpleNamespace(estimator="reinforce", gamma=1.0, no_std_norm=False),
            kl=SimpleNamespace(use_loss=False, estimator="k1", target=None, init_coef=0.0),
        ),
        "rollout": dict(n_samples_per_prompt=4, micro_batch_size=5, max_new_tokens=8, batch_size=6),
        "train": dict(dynamic_batch_enable=False, colocate_all=False, colocate_actor_ref=False),
        "reward": dict(
            clip_range=None, overlong_buffer_len=None, overlong_penalty_factor=1.0, stop_properly_penalty_coef=None
        ),
        "ds": dict(ring_attn_size=1, tensor_parallel_size=1),
        "ckpt": dict(
            save_steps=1, path=None, load_enable=True, best_metric_key="pass1"
        ),  # a test that saves says where
        "logger": dict(logging_steps=1),
    }
    for name, values in changes.items():
        options[name] |= values
    return SimpleNamespace(**{name: SimpleNamespace(**values) for name, values in options.items()})


def begin(self, args, kl_coefficient=0.0):
    """In place of ``PPOTrainer.__init__``, which loads data sets and models."""
    self.args, self.strategy = args, SimpleNamespace(args=args)
    self.actor_model_group, self.critic_model_group, self.vllm_engines = ActorGroup(), None, None
    self.tokenizer, self.kl_ctl = MagicMock(pad_token_id=0), MagicMock(value=kl_coefficient)
    self.samples_generator = Generator()
    self.wandb_logger = self.tensorboard_logger = None
    self.best_eval_metric_key, self.best_eval_metric_value, self._latest_eval_metric_value = "pass1", -1.0, None
    self.ppo_train = lambda global_step: {}
    maker = importlib.import_module("openrlhf.trainer.ppo_utils.experience_maker")
    self.experience_maker = maker.RemoteExperienceMaker(
        self.actor_model_group, None, None, None, self.kl_ctl, self.strategy, self.tokenizer
    )


def make_trainer(estimator, args=None, *, weights="none", **kwargs):
    return baseline_trainer(estimator, weights=weights).__ray_metadata__.modified_class(args or arguments(), **kwargs)


def rollout(openrlhf, rewards, prompts, images=None, truncated=None):
    """Single completions as ``SamplesGenerator._process_response_into_experience`` makes them."""
    samples = []
    for row, (reward, prompt) in enumerate(zip(rewards, prompts, strict=True)):
        length = 6 + row % 3
        mask = torch.zeros(1, length - 1, dtype=torch.long)
        mask[:, 3:] = 1
        samples.append(
            openrlhf.Experience(
                sequences=torch.ones(1, length, dtype=torch.long),
                attention_mask=torch.ones(1, length, dtype=torch.long),
                action_mask=mask,
                prompts=[prompt],
                labels=[""],
                images=[None if images is None else images[row]],
                mm_train_inputs=[None],
                rewards=torch.tensor([float(reward)]),
                scores=torch.tensor([float(reward)]),
                response_length=torch.tensor([length - 4]),
                truncated=torch.tensor([bool(truncated and truncated[row])]),
                total_length=torch.tensor([float(length)]),
                info={"reward": torch.tensor([float(reward)])},
            )
        )
    return samples


def advantages_of(trainer, samples, step):
    """What the policy update would get, one number per completion, in the order of the samples."""
    trainer.train_step(samples, step)
    found = np.full(len(samples), np.nan)
    for experience in trainer.actor_model_group.experiences:
        assert experience.kl is None and torch.equal(experience.advantages, experience.returns)
        for row, place in enumerate(experience.index):
            tokens = experience.advantages[row][experience.action_mask[row].bool()]
            assert (tokens == tokens[0]).all()
            found[place] = tokens[0]
    return found
