"""What of SkyRL 0.3.0 its recipe touches, written out in short from its source, for environments without SkyRL.

`modules` puts it where SkyRL's own modules are; with SkyRL installed the tests use the real ones instead.
"""

import math
import os
from types import SimpleNamespace

import torch

from tests.fakes.modules import add_module


class TrainingInputBatch(dict):
    """skyrl.backends.skyrl_train.training_batch: tensors by name, and metadata."""

    metadata: dict


def pad_training_input_batch(batch, pad_size):
    """Copies of row 0 under uids of their own."""
    padded = TrainingInputBatch(
        {key: torch.cat([tensor, tensor[[0] * pad_size].clone()]) for key, tensor in batch.items()}
    )
    padded.metadata = dict(batch.metadata)
    padded.metadata["uids"] = batch.metadata["uids"] + [f"pad{k}" for k in range(pad_size)]
    if "is_last_step" in batch.metadata:
        padded.metadata["is_last_step"] = batch.metadata["is_last_step"] + [True] * pad_size
    return padded


class RayPPOTrainer:
    """skyrl.train.trainer: the methods around which the recipe stands."""

    def convert_to_training_input(self, generator_output, uids):
        width = max(len(response) for response in generator_output["response_ids"])
        mask, rewards = torch.zeros(len(uids), width, dtype=torch.int64), torch.zeros(len(uids), width)
        for row, reward in enumerate(generator_output["rewards"]):  # right-aligned
            mask[row, width - len(reward) :] = 1
            rewards[row, width - len(reward) :] = torch.tensor(reward)
        batch = TrainingInputBatch({"response_mask": mask, "rewards": rewards})
        batch.metadata = {"uids": uids}
        if generator_output.get("is_last_step") is not None:
            batch.metadata["is_last_step"] = generator_output["is_last_step"]
        size = self.dispatch.get_lcm_dp_size()
        return pad_training_input_batch(batch, math.ceil(len(uids) / size) * size - len(uids))

    def compute_advantages_and_returns(self, data):
        data["advantages"] = data["returns"] = torch.zeros_like(data["rewards"])
        return data

    def save_checkpoints(self):
        folder = os.path.join(self.cfg.trainer.ckpt_path, f"global_step_{self.global_step}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(self.cfg.trainer.ckpt_path, "latest_ckpt_global_step.txt"), "w") as file:
            file.write(str(self.global_step))
        return folder

    def load_checkpoints(self):
        latest = os.path.join(self.cfg.trainer.ckpt_path, "latest_ckpt_global_step.txt")
        if not os.path.exists(latest):
            return 0, None
        with open(latest) as file:
            step = int(file.read())
        return step, os.path.join(self.cfg.trainer.ckpt_path, f"global_step_{step}")


def modules():
    """sys.modules entries under SkyRL's names."""
    made = {}
    storage = SimpleNamespace(makedirs=os.makedirs, open_file=open)
    add_module(made, "skyrl.backends.skyrl_train.utils.io", io=storage)
    add_module(made, "skyrl.train.config", SkyRLTrainConfig=object)
    add_module(made, "skyrl.train.entrypoints.main_base", BasePPOExp=object, validate_cfg=None)
    add_module(made, "skyrl.train.trainer", RayPPOTrainer=RayPPOTrainer, ResumeMode=SimpleNamespace(LATEST="latest"))
    add_module(made, "skyrl.train.utils", initialize_ray=None)
    return made
