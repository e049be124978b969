"""The recipe for NeMo-RL's single controller: on its real actor class where there is a folder of its source.

Otherwise on a class with what was read there of the stage that computes advantages.
"""

import asyncio
import importlib
import sys
import types
from types import SimpleNamespace
from unittest.mock import AsyncMock

import numpy as np
import pytest
import torch

from kaestat import AsynchronousEstimator
from tests.helpers.upstream import EmptyPackages, checkout
from tests.integrations.test_recipes import blocks, nemo_rl_step, run

ray = pytest.importorskip("ray")
MODULE = "nemo_rl.algorithms.single_controller"
NOT_NEEDED = {"matplotlib", "mlflow", "prometheus_client", "pynvml", "soundfile", "swanlab", "zmq"}  # where missing


class WrittenOut:
    """``SingleControllerActor`` as read at commit 7ea279a."""

    async def _advantage_stage(self, meta):
        data = self._dp_client.get_samples()
        mask = data["token_mask"] * data["sample_mask"].unsqueeze(-1)
        advantages = self._advantage_estimator.compute_advantage(
            prompt_ids=data["prompt_ids_for_adv"],
            rewards=data["total_reward"],
            mask=mask,
            repeated_batch={"total_reward": data["total_reward"]},
        )
        self._dp_client.put_samples(fields={"advantages": advantages})
        return meta, True

    async def _save_checkpoint(self, step_metrics):
        """The trainer's, the data loader's and the buffer's part of it."""


@pytest.fixture(scope="module", params=["written out", "upstream"])
def nemo_rl(request):
    """The module of the actor, and what makes the meta of a batch."""
    found = types.ModuleType(MODULE)
    if request.param == "written out":
        metadata = SimpleNamespace(modified_class=WrittenOut)
        found.SingleControllerActor = SimpleNamespace(__ray_metadata__=metadata)
        yield found, lambda fields, tags: SimpleNamespace(tags=tags)  # of NeMo-RL's KVBatchMeta
        return
    folder = checkout("nemo-rl")
    if folder is None:
        pytest.skip("needs a folder of NeMo-RL's source")
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "meta_path", [*sys.meta_path, EmptyPackages(NOT_NEEDED)])
        patch.setattr(sys, "path", [*sys.path, str(folder)])
        real = importlib.import_module(MODULE)
        plane = importlib.import_module("nemo_rl.data_plane")

        def meta(fields, tags):
            ids = [f"sample-{row}" for row in range(len(tags))]
            named = {"partition_id": "rollout_data", "task_name": "train", "sample_ids": ids}
            return plane.KVBatchMeta(**named, fields=fields, tags=tags)

        yield real, meta
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {"nemo_rl", *NOT_NEEDED}:
            del sys.modules[name]


@pytest.fixture
def recipe(nemo_rl, monkeypatch):
    """What the first block of the page's section leaves behind; NeMo-RL's own part of a checkpoint is left out."""
    monkeypatch.setattr(
        nemo_rl[0].SingleControllerActor.__ray_metadata__.modified_class, "_save_checkpoint", AsyncMock()
    )
    monkeypatch.setitem(sys.modules, "nemo_rl", types.ModuleType("nemo_rl"))
    monkeypatch.setitem(sys.modules, "nemo_rl.algorithms", types.ModuleType("nemo_rl.algorithms"))
    monkeypatch.setitem(sys.modules, MODULE, nemo_rl[0])
    return run("nemo-rl", 2, "copy_of_run_grpo_single_controller")


def data_of(prompts, rewards):
    """The columns of a batch, as `nemo_rl_step` makes them, and NeMo-RL's masks of tokens and of samples."""
    step = nemo_rl_step(prompts, np.float32(rewards), np.random.default_rng(len(prompts)))
    masks = {"token_mask": step["mask"], "sample_mask": torch.ones(len(prompts))}
    return {"prompt_ids_for_adv": step["prompt_ids"], "total_reward": step["rewards"], **masks}


class DataPlane:
    """Hands out a batch and takes its advantages."""

    def get_samples(self, **asked):
        return self.data

    def put_samples(self, *, fields, **named):
        self.advantages = fields["advantages"]


def controller(recipe, folder, state):
    """An actor's plain class, as Ray would make it from what `main` has put together; without pumps."""
    given = {
        "actor_args": SimpleNamespace(save_state=SimpleNamespace(current_step=state)),
        "tokenizer": SimpleNamespace(pad_token_id=0),
        "config": SimpleNamespace(checkpointing={"checkpoint_dir": str(folder)}),
    }
    exec(compile(blocks("nemo-rl")[3], "nemo-rl.md", "exec"), recipe.__dict__ | given)
    made = object.__new__(recipe.SingleControllerActor.__ray_metadata__.modified_class)
    made._advantage_estimator = ray.cloudpickle.loads(ray.cloudpickle.dumps(given["actor_args"].advantage_estimator))
    made._dp_client, made._trainer_version, made._train_steps = DataPlane(), state, state
    made._policy_logprobs_required = made._reference_logprobs_required = False
    made._master_config = SimpleNamespace(grpo=SimpleNamespace(seq_logprob_error_threshold=None))
    made._step_log_dict = {"rewards": [], "masked_advantages": [], "seq_logprob_error_metrics": []}
    if recipe.Controller.__base__ is not WrittenOut:
        config = importlib.import_module("nemo_rl.algorithms.single_controller_utils.config")
        made._advantage_cfg = config.AdvantageConfig()
    return made


# Step of the trainer, then the groups of each call: prompt, rewards, version.
RUN = [
    (0, [[("a", [1.0, 0.0], 0), ("bb", [1.0, 1.0], 0)]]),
    (1, [[("a", [0.0, 0.0], 1)], [("bb", [0.0, 1.0], 0), ("ccc", [1.0, 0.0], 1)]]),
    (2, [[("a", [1.0, 0.0], 1)], [("a", [1.0, 1.0], 2), ("bb", [0.0, 0.0], 1)]]),
    (3, [[("ccc", [0.0, 0.0], 2), ("bb", [1.0, 0.0], 3)]]),
]


def test_integration_single_controller_has_the_values_of_the_versions_and_goes_on(nemo_rl, recipe, tmp_path):
    plain = AsynchronousEstimator("kae", bandwidth=10)
    actor = controller(recipe, tmp_path, 0)
    for step, calls in RUN:
        actor._trainer_version = step
        for groups in calls:
            prompts = [prompt for prompt, rewards, _ in groups for _ in rewards]
            rewards = [reward for _, of_group, _ in groups for reward in of_group]
            version = [of for _, of_group, of in groups for _ in of_group]
            actor._dp_client.data = data_of(prompts, rewards)
            meta = nemo_rl[1](list(actor._dp_client.data), [{"weight_version": of} for of in version])
            asyncio.run(actor._advantage_stage(meta))
            expected = plain.step(prompts, rewards, step, version=version)
            found = actor._dp_client.advantages
            np.testing.assert_allclose(found.numpy(), np.repeat(expected[:, None], found.shape[1], 1), atol=1e-6)
        actor._train_steps = step + 1
        if step == 1:
            asyncio.run(actor._save_checkpoint({}))
            actor = controller(recipe, tmp_path, 2)
