"""What of SkyRL 0.3.0 the adapters touch, written out in short from its source, for environments without SkyRL.

`modules` puts it where SkyRL's own modules are; with SkyRL installed the tests use the real ones instead.
"""

import math
import os
from collections import defaultdict
from functools import partial

import numpy as np
import torch

from tests.fakes.modules import add_module


class AdvantageEstimatorRegistry:
    """skyrl.backends.skyrl_train.utils.ppo_utils, without the copy that Ray keeps."""

    _functions: dict = {}  # noqa: RUF012 - as in the source

    @classmethod
    def register(cls, name, func):
        if name in cls._functions:
            raise ValueError(f"advantage estimator '{name}' already registered")
        cls._functions[name] = func

    @classmethod
    def get(cls, name):
        return cls._functions[name]

    @classmethod
    def unregister(cls, name):
        del cls._functions[name]


def _by_uid(index):
    rows = defaultdict(list)
    for row, uid in enumerate(index):
        rows[uid].append(row)
    return rows.values()


def compute_rloo_outcome_advantage(token_level_rewards, response_mask, index, **kwargs):
    scores = token_level_rewards.sum(dim=-1)
    for rows in _by_uid(index):
        group = scores[rows]
        scores[rows] = (group - group.mean()) * len(rows) / (len(rows) - 1) if len(rows) > 1 else 0.0
    scores = scores.unsqueeze(-1) * response_mask
    return scores, scores


def compute_grpo_outcome_advantage(token_level_rewards, response_mask, index, grpo_norm_by_std=True, **kwargs):
    scores = token_level_rewards.sum(dim=-1)
    for rows in _by_uid(index):
        group = scores[rows]
        if len(rows) > 1:
            scores[rows] = (group - group.mean()) / (group.std() + 1e-6 if grpo_norm_by_std else 1.0)
        elif grpo_norm_by_std:
            scores[rows] = group / (1.0 + 1e-6)
    scores = scores.unsqueeze(-1) * response_mask
    return scores, scores


def compute_advantages_and_returns(token_level_rewards, response_mask, index, adv_estimator, config, **kwargs):
    function = AdvantageEstimatorRegistry.get(adv_estimator)
    return function(
        token_level_rewards=token_level_rewards, response_mask=response_mask, index=index, config=config, **kwargs
    )


class TrainingInputBatch(dict):
    """skyrl.backends.skyrl_train.training_batch: tensors by name, and metadata."""

    metadata: dict

    def to(self, device):
        return self


def pad_training_input_batch(batch, pad_size):
    """Copies of row 0 under uids of their own, out of the loss."""
    padded = TrainingInputBatch()
    for key, tensor in batch.items():
        extra = None if tensor is None else tensor[[0] * pad_size].clone()
        if key == "loss_mask":
            extra = torch.zeros_like(extra)
        padded[key] = None if tensor is None else torch.cat([tensor, extra], dim=0)
    padded.metadata = dict(batch.metadata) | {"pad_size": pad_size}
    padded.metadata["uids"] = batch.metadata["uids"] + [f"pad{k}" for k in range(pad_size)]
    if "is_last_step" in batch.metadata:
        padded.metadata["is_last_step"] = batch.metadata["is_last_step"] + [True] * pad_size
    return padded


def compute_prompt_mini_batch_boundaries(*args):
    raise AssertionError("the tests replace it: it needs whole groups in order")


class RayPPOTrainer:
    """skyrl.train.trainer: the methods around which the adapter stands."""

    def convert_to_training_input(self, generator_output, uids):
        width = max(len(response) for response in generator_output["response_ids"])
        batch = TrainingInputBatch()
        total = [
            len(prompt) + len(response)
            for prompt, response in zip(
                generator_output["prompt_token_ids"], generator_output["response_ids"], strict=True
            )
        ]
        rows = zip(generator_output["prompt_token_ids"], generator_output["response_ids"], total, strict=True)
        batch["sequences"] = torch.tensor(
            [[self.tokenizer.pad_token_id] * (max(total) - own) + prompt + response for prompt, response, own in rows]
        )
        mask, rewards = torch.zeros(len(uids), width, dtype=torch.int64), torch.zeros(len(uids), width)
        for row, reward in enumerate(generator_output["rewards"]):  # right-aligned
            mask[row, width - len(reward) :] = 1
            rewards[row, width - len(reward) :] = torch.tensor(reward)
        batch |= {"response_mask": mask, "rewards": rewards, "loss_mask": mask.float()}
        batch = TrainingInputBatch(batch)
        batch.metadata = {"uids": uids, "avg_response_length": 1.0}
        if generator_output.get("is_last_step") is not None:
            batch.metadata["is_last_step"] = generator_output["is_last_step"]
        size = self.dispatch.get_lcm_dp_size()
        return pad_training_input_batch(batch, math.ceil(len(uids) / size) * size - len(uids))

    def compute_advantages_and_returns(self, data):
        own = dict(
            adv_estimator=self.cfg.trainer.algorithm.advantage_estimator,
            config=self.cfg.trainer.algorithm,
            gamma=self.cfg.trainer.algorithm.gamma,
            lambd=self.cfg.trainer.algorithm.lambd,
            grpo_norm_by_std=self.cfg.trainer.algorithm.grpo_norm_by_std,
            values=data["values"],
        )
        uids, rewards = data.metadata["uids"], data["rewards"]
        if self.cfg.generator.step_wise_trajectories:
            last = torch.tensor(data.metadata["is_last_step"], dtype=torch.bool)
            scalar, _ = compute_advantages_and_returns(
                token_level_rewards=rewards[last],
                response_mask=torch.ones_like(data["response_mask"][last], dtype=torch.float),
                index=np.array(uids)[last.numpy()],
                **own,
            )
            trajectory = torch.cat([torch.tensor([False]), last[:-1]]).int().cumsum(dim=0)
            advantages = scalar[trajectory] * data["response_mask"].to(scalar.dtype)
        else:
            advantages, _ = compute_advantages_and_returns(
                token_level_rewards=rewards, response_mask=data["response_mask"], index=uids, **own
            )
        data["advantages"] = data["returns"] = advantages
        self.all_metrics["loss/avg_final_rewards"] = rewards.sum(dim=-1).mean().item()
        return data

    def save_checkpoints(self):
        folder = os.path.join(self.cfg.trainer.ckpt_path, f"global_step_{self.global_step}")
        os.makedirs(folder, exist_ok=True)
        torch.save(self.train_dataloader.state_dict(), os.path.join(folder, "data.pt"))
        torch.save({"global_step": self.global_step}, os.path.join(folder, "trainer_state.pt"))
        with open(os.path.join(self.cfg.trainer.ckpt_path, "latest_ckpt_global_step.txt"), "w") as file:
            file.write(str(self.global_step))
        return folder

    def load_checkpoints(self):
        latest = os.path.join(self.cfg.trainer.ckpt_path, "latest_ckpt_global_step.txt")
        if not os.path.exists(latest):
            return 0, None
        with open(latest) as file:
            step = int(file.read())
        path = os.path.join(self.cfg.trainer.ckpt_path, f"global_step_{step}", "data.pt")
        self.train_dataloader.load_state_dict(torch.load(path, weights_only=False))
        return step, os.path.join(self.cfg.trainer.ckpt_path, f"global_step_{step}")


class ResumeMode:
    LATEST = "latest"


def modules():
    """sys.modules entries under SkyRL's names."""
    found = {}
    add = partial(add_module, found)

    here = globals()
    base = "skyrl.backends.skyrl_train"
    names = ["AdvantageEstimatorRegistry", "compute_rloo_outcome_advantage", "compute_grpo_outcome_advantage"]
    add(f"{base}.utils.ppo_utils", **{name: here[name] for name in names})
    add(f"{base}.utils.io.io", makedirs=os.makedirs, open_file=open, exists=os.path.exists)
    add("skyrl.train.trainer", **{name: here[name] for name in ("RayPPOTrainer", "ResumeMode")})
    found["skyrl.train.trainer"].compute_prompt_mini_batch_boundaries = compute_prompt_mini_batch_boundaries
    AdvantageEstimatorRegistry._functions = {
        "rloo": compute_rloo_outcome_advantage,
        "grpo": compute_grpo_outcome_advantage,
    }
    return found
