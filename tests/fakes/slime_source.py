"""slime's samples and outputs: its own where a folder of its source is given, else written out from it."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field
from importlib.util import find_spec


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
    from slime.utils.types import Sample  # noqa: F401 - for the tests


def base_types():
    """sys.modules entries for what the adapter imports of slime; its own where it is there."""
    if find_spec("slime") is not None:
        return {}
    modules = {name: types.ModuleType(name) for name in ("slime", "slime.rollout", "slime.rollout.base_types")}
    modules["slime.rollout.base_types"].RolloutFnTrainOutput = RolloutFnTrainOutput
    return {name: module for name, module in modules.items() if name not in sys.modules}
