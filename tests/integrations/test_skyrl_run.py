"""SkyRL's own fully asynchronous trainer through whole epochs, on stubs of its generator, models and weight transfer.

Runs where SkyRL's source is given or installed (`make test-upstream`).
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
from collections import Counter
from importlib.util import find_spec
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.integrations.skyrl import register

pytestmark = pytest.mark.skipif(find_spec("skyrl") is None, reason="needs SkyRL or a folder of its source")

NUMBER = itertools.count()
N_PROMPTS, GROUP, BATCH = 13, 3, 4


class World:
    """In the place of the models and the generator: knows at every moment how often the policy was trained."""

    def __init__(self, trained):
        self.trained = self.serves = trained
        self.begun, self.steps = {}, []  # policy of each group, and the batches that were trained on

    async def push(self):
        self.serves = self.trained

    async def generate(self, generator_input, disable_tqdm=False):
        ids, number = generator_input["trajectory_ids"], len(self.begun)
        row, self.begun[number] = int(ids[0].instance_id), self.serves
        rng = np.random.default_rng([row, number])
        await asyncio.sleep(0.001 + 0.05 * float(rng.random() < 0.25))
        return {
            "prompt_token_ids": [[row + 1, 2]] * len(ids),
            "response_ids": [[9, number]] * len(ids),
            "rewards": [float(rng.random() < (row + 1) / (N_PROMPTS + 2)) for _ in ids],
            "loss_masks": [[1, 1]] * len(ids),
            "stop_reasons": ["stop"] * len(ids),
            "rollout_logprobs": None,
            "rollout_metrics": {},
        }


def make_trainer(folder, estimator, world, *, epochs=2, full=False, max_steps=None):
    name = f"kaestat{next(NUMBER)}"
    register(estimator, name)
    cfg = importlib.import_module("skyrl.train.config").SkyRLTrainConfig()
    trainer = cfg.trainer
    trainer.algorithm.advantage_estimator, trainer.algorithm.policy_loss_type = name, "rollout_is"
    trainer.algorithm.zero_variance_filter = full
    trainer.placement.colocate_all, cfg.generator.batched = False, False
    trainer.train_batch_size = trainer.policy_mini_batch_size = trainer.critic_mini_batch_size = BATCH
    trainer.epochs, trainer.ckpt_interval, trainer.eval_interval, trainer.hf_save_interval = epochs, 1, -1, -1
    trainer.ckpt_path, trainer.resume_mode, trainer.max_training_steps = str(folder), "latest", max_steps
    trainer.max_ckpts_to_keep = -1
    trainer.fully_async.enabled, trainer.fully_async.max_staleness_steps = True, 2
    trainer.fully_async.num_parallel_generation_workers = 2 * BATCH
    trainer.fully_async.sample_full_batch = full
    cfg.generator.n_samples_per_prompt = GROUP
    cfg.data.dataloader.num_workers, cfg.data.dataloader.persistent_workers = 0, False
    cfg.generator.inference_engine.enable_ray_prometheus_stats = trainer.enable_ray_gpu_monitor = False
    dataset_class = importlib.import_module("skyrl.train.dataset.dataset").PromptDataset
    dataset = object.__new__(dataset_class)
    dataset.prompt_key, dataset.env_class_key = "prompt", "env_class"
    rows = [{"prompt": [{"role": "user", "content": f"{k}+1="}], "env_class": "gsm8k"} for k in range(N_PROMPTS)]
    dataset.dataframe = importlib.import_module("datasets").Dataset.from_list(rows)
    made = importlib.import_module("kaestat.integrations.skyrl_async").AsyncBaselineTrainer(
        cfg=cfg,
        tracker=MagicMock(),
        tokenizer=SimpleNamespace(pad_token_id=0, decode=lambda ids: ""),
        train_dataset=dataset,
        inference_engine_client=None,
        generator=SimpleNamespace(generate=world.generate),
    )

    def trained(data):
        world.steps.append(data)
        world.trained = made.global_step
        return {}

    def no_models(data):
        data["values"] = None
        return data

    made.dispatch = MagicMock(save_weights_for_sampler=world.push, get_lcm_dp_size=lambda *args: 1)
    made.train_critic_and_policy, made.fwd_logprobs_values_reward = trained, no_models
    made._cleanup_old_checkpoints = lambda: None
    return made


def recorded(trainer):
    """Completions of each prompt and policy, as the history has them."""
    estimator = trainer.baseline.session.estimator
    history, now = estimator.history, estimator.last_step + 1
    visits = history.visits(list(history.columns.row), now)
    found = Counter()
    for row, key in enumerate(history.columns.row):
        for lag, count in zip(visits.lag[row], visits.count[row], strict=True):
            if count:
                found[key, int(now - lag)] += int(count)
    return found


def batches_of(trainer):
    """A list that fills with what the trainer takes out of its buffer: step, groups that are trained on, and others."""
    own, batches = trainer._collect_generation_mini_batch, []

    async def noted(*given):
        kept, dropped, exhausted = await own(*given)
        batches.append(
            (trainer.global_step, [], [*kept, *dropped]) if exhausted else (trainer.global_step, kept, dropped)
        )
        return kept, dropped, exhausted

    trainer._collect_generation_mini_batch = noted
    return batches


def begun_with(groups):
    """Step of the policy of each of the groups' completions, as SkyRL tells."""
    return [group.global_step_when_scheduled - 1 for group in groups for _ in range(GROUP)]


def told(groups):
    """Ids and rewards of the groups' completions."""
    ids = [group.uid for group in groups for _ in range(GROUP)]
    return ids, [reward for group in groups for reward in group.generator_output["rewards"]]


def estimator(**options):
    return AdvantageEstimator("kae", bandwidth=50, **options)


@pytest.mark.parametrize("full", [False, True])
def test_integration_skyrl_own_asynchronous_run_is_that_of_an_estimator_told_its_policies(tmp_path, full):
    world, plain, expected = World(0), estimator(order="any"), []
    trainer = make_trainer(tmp_path, estimator(order="any"), world, full=full)
    batches = batches_of(trainer)
    asyncio.run(trainer.train())
    every, late = Counter(), []
    for step, kept, others in batches:
        if kept:
            expected.append(plain.step(*told(kept), step - 1, version=begun_with(kept)))
        if others:
            plain.observe(*told(others), step - 1, version=begun_with(others))
        for group in [*kept, *others]:
            every[group.uid, group.global_step_when_scheduled - 1] += GROUP
            late.append(step - group.global_step_when_scheduled)
            policy = world.begun[group.generator_output["response_ids"][0][1]]
            assert policy - 1 <= group.global_step_when_scheduled - 1 <= policy
    assert recorded(trainer) == every and max(late) >= 1
    assert any(others for *_, others in batches) == full
    assert len(expected) == len(world.steps) == trainer.global_step - 1
    for values, data in zip(expected, world.steps, strict=True):
        np.testing.assert_allclose(data["advantages"][:, -1].numpy(), values, rtol=1e-5, atol=1e-6)


def test_integration_skyrl_own_asynchronous_run_resumes_with_the_history_of_its_checkpoint(tmp_path):
    first = make_trainer(tmp_path, estimator(order="any"), World(0), max_steps=2)
    asyncio.run(first.train())
    assert first.global_step == 3
    again = World(2)
    second = make_trainer(tmp_path, estimator(order="any"), again)
    at_start, own = {}, second.load_checkpoints

    def noted():
        loaded = own()
        at_start.update(recorded(second))
        return loaded

    second.load_checkpoints = noted
    asyncio.run(second.train())
    assert at_start == recorded(first)
    assert recorded(second).total() == recorded(first).total() + len(again.steps) * BATCH * GROUP


def test_integration_skyrl_own_asynchronous_run_in_strict_order_records_under_the_step_of_training(tmp_path):
    trainer = make_trainer(tmp_path, estimator(), World(0), full=True)
    batches = batches_of(trainer)
    asyncio.run(trainer.train())
    expected = Counter()
    for step, kept, dropped in batches:
        for group in [*kept, *dropped] if kept else ():  # what is left over at the end of an epoch is of no step
            expected[group.uid, step - 1] += GROUP
    assert recorded(trainer) == expected and any(kept and dropped for _, kept, dropped in batches)
