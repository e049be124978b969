"""Baselines of kaestat in SkyRL, tested with 0.3.0, 0.4.0 and commit a956457 of its main branch.

Copy this file beside your data, choose the method below, and run it with SkyRL's own arguments::

    python kae_skyrl.py trainer.algorithm.advantage_estimator=grpo data.train_data="['train.parquet']" ...

It replaces the advantages that SkyRL's trainer has computed. The id of a prompt is SkyRL's uid, its row in the data
set, checked against the prompt's tokens; the step is ``global_step - 1``. A completion counts at the step that trains
on it, also in the fully asynchronous trainer. The history is in SkyRL's checkpoints. Leave
trainer.algorithm.dynamic_sampling.type off: the history would not see the dropped groups.
"""

import sys
from itertools import compress

import numpy as np
import ray
import torch
from skyrl.backends.skyrl_train.utils.io import io
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.entrypoints.main_base import BasePPOExp, validate_cfg
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils import initialize_ray

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.session import TrainerSession


class BaselineTrainer(RayPPOTrainer):
    """SkyRL's trainer with other advantages."""

    def __init__(self, *given, **parts):
        super().__init__(*given, **parts)
        self.session = TrainerSession(AdvantageEstimator())

    def convert_to_training_input(self, generator_output, uids):
        """SkyRL's batch; keeps the tokens that each trajectory begins with."""
        prompts, last = generator_output["prompt_token_ids"], generator_output.get("is_last_step")
        self.prompts = prompts if last is None else list(compress(prompts, [True, *last[:-1]]))
        return super().convert_to_training_input(generator_output, uids)

    def compute_advantages_and_returns(self, data):
        """All rows of a trajectory get its advantage; trajectories behind the generator's own are padding."""
        data = super().compute_advantages_and_returns(data)
        uids, real = data.metadata["uids"], len(self.prompts)
        last = np.array(data.metadata.get("is_last_step", [True] * len(uids)))
        rewards = data["rewards"].sum(dim=-1).cpu().numpy().astype(float)[last]
        ids, found = list(compress(uids, last))[:real], np.zeros(len(rewards))
        found[:real] = self.session.advantages(rewards[:real], self.global_step - 1, prompts=self.prompts, ids=ids)
        column = data["rewards"].new_tensor(found[last.cumsum() - last])
        data["advantages"] = data["returns"] = column.unsqueeze(-1) * data["response_mask"]
        self.all_metrics.update(self.session.metrics)
        return data

    def save_checkpoints(self):
        """Save the history first: SkyRL marks a checkpoint as complete at the end."""
        folder = f"{self.cfg.trainer.ckpt_path}/global_step_{self.global_step}"
        io.makedirs(folder, exist_ok=True)
        with io.open_file(f"{folder}/kaestat_state.pt", "wb") as file:
            torch.save(self.session.state_dict(), file)
        return super().save_checkpoints()

    def load_checkpoints(self):
        """SkyRL's result, after loading the history; a checkpoint without one stops the run."""
        step, folder = super().load_checkpoints()
        if folder is not None:
            with io.open_file(f"{folder}/kaestat_state.pt", "rb") as file:
                self.session.load_state_dict(torch.load(file, weights_only=True))
        return step, folder


class BaselineExp(BasePPOExp):
    def get_trainer(self, **parts):
        return BaselineTrainer(**parts)


if __name__ == "__main__":
    validate_cfg(cfg := SkyRLTrainConfig.from_cli_overrides(sys.argv[1:]))
    initialize_ray(cfg)
    ray.get(ray.remote(BaselineExp).remote(cfg).run.remote())
