"""slime's samples and outputs (its own where a folder of its source is given), and its rollouts, written out."""

import os
import sys
import types
from dataclasses import dataclass, field
from importlib.util import find_spec

import numpy as np


@dataclass
class WrittenSample:
    """The fields of slime.utils.types.Sample (commit 624b824) that are set before rewards are processed."""

    group_index: int | None = None
    index: int | None = None
    rollout_id: int | None = None
    prompt: str | list[dict[str, str]] = ""
    multimodal_inputs: dict | None = None
    response_length: int = 3
    reward: float | dict | None = None
    loss_mask: list[int] | None = None
    remove_sample: bool = False
    metadata: dict = field(default_factory=dict)

    def get_reward_value(self, args):
        return self.reward if not args.reward_key else self.reward[args.reward_key]


@dataclass
class WrittenOutput:
    """slime.rollout.base_types.RolloutFnTrainOutput (commit 624b824)."""

    samples: list
    metrics: dict | None = None


if find_spec("slime") is None:
    Sample, RolloutFnTrainOutput = WrittenSample, WrittenOutput
else:
    from slime.rollout.base_types import RolloutFnTrainOutput
    from slime.utils.types import Sample


def base_types():
    """sys.modules entries for what the adapter imports of slime; its own where it is there."""
    if find_spec("slime") is not None:
        return {}
    modules = {name: types.ModuleType(name) for name in ("slime", "slime.rollout", "slime.rollout.base_types")}
    modules["slime.rollout.base_types"].RolloutFnTrainOutput = RolloutFnTrainOutput
    return {name: module for name, module in modules.items() if name not in sys.modules}


def slime_args(**changes):
    defaults = dict(
        reward_key=None,
        advantage_estimator="grpo",
        rollout_batch_size=6,
        n_samples_per_prompt=4,
        prompts=[f"What is 1{'0' * k}+1?" for k in range(9)],
    )
    return types.SimpleNamespace(**defaults | changes)


class RolloutDataSource:
    """slime.rollout.data_source.RolloutDataSource (commit 624b824) on a list of prompts, without shuffling."""

    def __init__(self, args):
        self.args = args
        self.sample_group_index = self.sample_index = self.sample_offset = 0
        self.dataset = args.prompts

    def get_samples(self, num_samples):
        prompts = [self.dataset[(self.sample_offset + k) % len(self.dataset)] for k in range(num_samples)]
        self.sample_offset = (self.sample_offset + num_samples) % len(self.dataset)
        samples = []
        for prompt in prompts:
            group = []
            for _ in range(self.args.n_samples_per_prompt):
                group.append(Sample(group_index=self.sample_group_index, index=self.sample_index, prompt=prompt))
                self.sample_index += 1
            self.sample_group_index += 1
            samples.append(group)
        return samples

    def save(self, rollout_id):
        path = os.path.join(self.args.save, f"rollout/global_dataset_state_dict_{rollout_id}.pt")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(f"{self.sample_offset} {self.sample_group_index} {self.sample_index}")

    def load(self, rollout_id=None):
        path = os.path.join(self.args.load, f"rollout/global_dataset_state_dict_{rollout_id}.pt")
        if os.path.exists(path):
            with open(path) as file:
                self.sample_offset, self.sample_group_index, self.sample_index = map(int, file.read().split())


class Dataset:
    def __init__(self, prompts):
        self.samples = [Sample(prompt=prompt, metadata={"row": k, "id": k}) for k, prompt in enumerate(prompts)]


class ListedDataSource(RolloutDataSource):
    """slime's, with its buffer and with the data set that a sampler draws from."""

    def __init__(self, args):
        super().__init__(args)
        self.prompts, self.dataset, self.buffer = args.prompts, Dataset(args.prompts), []

    def get_samples(self, num_samples):
        back, self.buffer = self.buffer[:num_samples], self.buffer[num_samples:]
        self.dataset, dataset = self.prompts, self.dataset
        groups = super().get_samples(num_samples - len(back))
        self.dataset = dataset
        return back + groups

    def add_samples(self, groups):
        self.buffer += groups


def generate_rollout(args, rollout_id, data_source, evaluation=False):
    """A rollout function as slime calls it: rewards depend on the prompt and on the rollout."""
    groups = data_source.get_samples(args.rollout_batch_size)
    rng = np.random.default_rng(rollout_id)
    for group in groups:
        for sample in group:
            sample.reward = float(rng.random() < 0.2 + 0.6 * (len(sample.prompt) % 2))
    return RolloutFnTrainOutput(groups, {"rollout/x": 1.0})


class RolloutManager:
    """What slime.ray.rollout.RolloutManager (commit 624b824) does around the three hooks."""

    def __init__(self, args, reward_post_process, rollout_function, data_source_class):
        self.args, self.post_process, self.rollout = args, reward_post_process, rollout_function
        self.data_source = data_source_class(args)

    def generate(self, rollout_id):
        output = self.rollout(self.args, rollout_id, self.data_source, evaluation=False)
        self.metrics = output.metrics
        samples = [sample for group in output.samples for sample in group]
        raw_rewards, rewards = self.post_process(self.args, samples)
        assert len(raw_rewards) == len(samples) and len(rewards) == len(samples)
        return rewards
