"""slime's samples and outputs (its own where a folder of its source is given), and its data source, written out."""

import os
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

from tests.fakes.modules import add_module


@dataclass
class WrittenSample:
    """The fields of slime.utils.types.Sample (commit 624b824) that are set before rewards are processed."""

    group_index: int | None = None
    index: int | None = None
    rollout_id: int | None = None
    prompt: str | list[dict[str, str]] = ""
    multimodal_inputs: dict | None = None
    reward: float | dict | None = None
    remove_sample: bool = False
    metadata: dict = field(default_factory=dict)

    def get_reward_value(self, args):
        return self.reward if not args.reward_key else self.reward[args.reward_key]


@dataclass
class WrittenOutput:
    """slime.rollout.base_types.RolloutFnTrainOutput (commit 624b824)."""

    samples: list
    metrics: dict | None = None


INSTALLED = find_spec("slime") is not None
if INSTALLED:
    Sample = import_module("slime.utils.types").Sample
    RolloutFnTrainOutput = import_module("slime.rollout.base_types").RolloutFnTrainOutput
else:
    Sample, RolloutFnTrainOutput = WrittenSample, WrittenOutput


def slime_args(folder=None):
    return SimpleNamespace(reward_key=None, advantage_estimator="grpo", save=folder, load=folder)


class RolloutDataSourceWithBuffer:
    """slime.rollout.data_source (commit 624b824): its calls around a checkpoint."""

    def __init__(self, args):
        self.args, self.sample_offset = args, 0

    def save(self, rollout_id):
        path = os.path.join(self.args.save, f"rollout/global_dataset_state_dict_{rollout_id}.pt")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(str(self.sample_offset))

    def load(self, rollout_id=None):
        path = os.path.join(self.args.load, f"rollout/global_dataset_state_dict_{rollout_id}.pt")
        if os.path.exists(path):
            with open(path) as file:
                self.sample_offset = int(file.read())


def generate_rollout(args, rollout_id, data_source, evaluation=False):
    return RolloutFnTrainOutput([], {"rollout/x": 1.0})


def modules():
    """sys.modules entries for what the recipe imports of slime; its engines need GPUs."""
    made = {}
    add_module(made, "slime.rollout.data_source", RolloutDataSourceWithBuffer=RolloutDataSourceWithBuffer)
    add_module(made, "slime.rollout.sglang_rollout", generate_rollout=generate_rollout)
    return {name: module for name, module in made.items() if not INSTALLED or name.count(".") == 2}
