"""What of rLLM (commit 9beb6e0) its recipe touches, written out in short from its source.

`modules` puts it where rLLM's own modules are; with a folder of its source the tests use the real ones instead.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from tests.fakes.modules import add_module


@dataclass
class Step:
    prompt_ids: list = field(default_factory=list)
    response_ids: list = field(default_factory=list)
    advantage: Any = None
    weight_version: int | None = None


@dataclass
class Trajectory:
    name: str = "default_traj_name"
    task: Any = None
    steps: list = field(default_factory=list)
    reward: float | None = None


@dataclass
class TrajectoryGroup:
    trajectories: list
    group_id: str = ""

    @property
    def group_role(self):
        return self.group_id.split(":")[1]

    @property
    def task_id(self):
        return self.group_id.split(":")[0]


class rLLMAdvantageEstimator(str, Enum):  # noqa: UP042 - as rLLM has it
    GRPO = "grpo"
    OTHER = "other"

    @classmethod
    def _missing_(cls, value):
        return cls.OTHER


@dataclass
class AlgorithmConfig:
    estimator: Any = rLLMAdvantageEstimator.GRPO
    estimator_map: dict = field(default_factory=dict)


def modules():
    """sys.modules entries under rLLM's names."""
    registry: dict = {"grpo": None}

    def register_rllm_adv_estimator(name):
        return lambda function: registry.setdefault(name, function)

    def collect(groups, algorithm_config):
        by_role = defaultdict(list)
        for group in groups:
            by_role[group.group_role].append(group)
        for role, own in by_role.items():
            rewards = [np.array([t.reward for t in group.trajectories]) for group in own]
            function = registry[algorithm_config.estimator_map.get(role, algorithm_config.estimator)]
            found, _ = function(rewards=rewards, algorithm_config=algorithm_config, traj_groups=own)
            for group, advantages in zip(own, found, strict=True):
                for trajectory, advantage in zip(group.trajectories, advantages, strict=True):
                    for step in trajectory.steps:
                        step.advantage = float(advantage)
        return {}

    made = {}
    add_module(made, "rllm.types", Step=Step, Trajectory=Trajectory, TrajectoryGroup=TrajectoryGroup)
    config = {"rLLMAdvantageEstimator": rLLMAdvantageEstimator, "AlgorithmConfig": AlgorithmConfig}
    add_module(made, "rllm.trainer.algorithms.config", **config)
    add_module(
        made,
        "rllm.trainer.algorithms.advantage",
        RLLM_ADV_ESTIMATOR_REGISTRY=registry,
        register_rllm_adv_estimator=register_rllm_adv_estimator,
        collect_reward_and_advantage_from_trajectory_groups=collect,
    )
    return made
