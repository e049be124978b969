"""OpenRLHF: experience maker and trainer; on its own classes where it is installed, else on those written out."""

import importlib
import sys
from importlib.util import find_spec
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from kaestat import AdvantageEstimator
from kaestat.integrations.openrlhf import BaselineExperienceMakerMixin, install
from kaestat.integrations.shared import conformance
from kaestat.integrations.shared.prompt_ids import hash_prompt
from tests.fakes import openrlhf_source
from tests.fakes.modules import put_in_place
from tests.fakes.openrlhf_runs import advantages_of, arguments, begin, kae, make_trainer, rollout
from tests.helpers.upstream import EmptyPackages

GPU_PACKAGES = ("flash_attn", "deepspeed", "vllm", "bitsandbytes", "optimum", "torchmetrics", "ring_flash_attn")
NO_RAY = SimpleNamespace(get=lambda refs: refs, put=lambda value: value)  # calls of models return what they would


@pytest.fixture(autouse=True)
def openrlhf(monkeypatch):
    """OpenRLHF's modules, real or written out, with Ray's calls answered at once."""
    if find_spec("openrlhf"):
        monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, EmptyPackages(GPU_PACKAGES)])
    else:
        put_in_place(monkeypatch, openrlhf_source.modules())
    maker = importlib.import_module("openrlhf.trainer.ppo_utils.experience_maker")
    trainer = importlib.import_module("openrlhf.trainer.ppo_trainer")
    for module in (maker, trainer):
        monkeypatch.setattr(module, "ray", NO_RAY)
    experience = importlib.import_module("openrlhf.trainer.ppo_utils.experience")
    plain = trainer.PPOTrainer.__ray_metadata__.modified_class
    monkeypatch.setattr(plain, "__init__", begin)
    return SimpleNamespace(maker=maker, trainer=trainer, plain=plain, Experience=experience.Experience)


@pytest.fixture
def adapter(openrlhf, tmp_path):
    class OpenRLHFAdapter:
        """Conformance rows as one step's rollout samples; there are no padding rows, so none is passed on."""

        def __init__(self, estimator):
            saving = {"path": str(tmp_path), "save_steps": 1}
            self.trainer, self.done = make_trainer(estimator, arguments(ckpt=saving)), 0

        def advantages(self, rows):
            real = np.flatnonzero(~rows.padding)
            found = np.zeros(len(rows.ids))
            samples = rollout(openrlhf, rows.rewards[real], [rows.prompts[row] for row in real])
            found[real] = advantages_of(self.trainer, samples, rows.step)
            self.done = rows.step + 1
            return found

        def advantages_beside(self, rows, dropped):
            kept, gone = (rollout(openrlhf, each.rewards, each.prompts) for each in (rows, dropped))
            self.trainer.samples_generator._dropped = gone
            return advantages_of(self.trainer, kept, rows.step)

        def state(self):
            self.trainer.save_logs_and_checkpoints(self.done, {}, {"global_step": self.done})
            return self.trainer.actor_model_group.saved[-1]["client_states"]

        def restore(self, state):
            self.trainer.actor_model_group.states = state
            self.trainer.init_checkpoint_states()

    return OpenRLHFAdapter


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_integration_openrlhf_conforms(check, adapter):
    check(adapter)


@pytest.mark.parametrize(("ours", "theirs"), [("rloo", "rloo"), ("dr_grpo", "dr_grpo"), ("grpo", "group_norm")])
def test_integration_openrlhf_agrees_with_its_own_estimators(ours, theirs, openrlhf):
    rng = np.random.default_rng(0)
    rewards, prompts = rng.random(24), [f"p{k // 4}" for k in range(24)]
    trainer = make_trainer(AdvantageEstimator(ours), kl_coefficient=0.1)
    advantages_of(trainer, rollout(openrlhf, rewards, prompts), 0)
    args = arguments(algo={"advantage": SimpleNamespace(estimator=theirs, gamma=1.0, no_std_norm=False)})
    plain = openrlhf.plain(args, kl_coefficient=0.1)
    plain.train_step(rollout(openrlhf, rewards, prompts), 0)
    for mine, own in zip(trainer.actor_model_group.experiences, plain.actor_model_group.experiences, strict=True):
        tolerance = dict(rtol=1e-5, atol=1e-5)  # they divide by std + 1e-9, we by std + 1e-6
        torch.testing.assert_close(mine.advantages, own.advantages, **tolerance)
        torch.testing.assert_close(mine.info["return"], own.info["return"], **tolerance)
        torch.testing.assert_close(mine.info["group_reward_std"], own.info["group_reward_std"], **tolerance)


def test_integration_openrlhf_token_advantage_is_the_completions_less_the_kl_penalty_to_come(openrlhf):
    samples = rollout(openrlhf, [1.0, 0.0], ["p", "p"])
    trainer = make_trainer(AdvantageEstimator("dr_grpo"), kl_coefficient=0.5)
    batches = trainer.experience_maker.make_experience(trainer.experience_maker.split_rollout_samples(samples))
    batches[0].kl = batches[0].action_mask.float()
    trainer.experience_maker.compute_advantages_and_returns(batches)
    assert batches[0].advantages[0, 3:5].tolist() == [0.5 - 1.0, 0.5 - 0.5]
    assert batches[0].advantages[1, 3:].tolist() == [-0.5 - 1.5, -0.5 - 1.0, -0.5 - 0.5]


def test_integration_openrlhf_micro_batches_in_any_order_give_each_completion_its_own_advantage(openrlhf):
    """With --train.dynamic_batch_enable they hold completions sorted by length, here those of a prompt's two groups."""
    trainer, plain = make_trainer(AdvantageEstimator("kae_stream")), AdvantageEstimator("kae_stream")
    maker, rng = trainer.experience_maker, np.random.default_rng(2)
    for step in range(3):
        rewards = rng.random(8).astype(np.float32)
        expected = plain.step(["p"] * 8, rewards.astype(float), step, stream_ids=np.repeat([0, 1], 4).tolist())
        batches = maker.make_experience(maker.split_rollout_samples(rollout(openrlhf, rewards, ["p"] * 8)))[::-1]
        maker.step = step
        for experience in maker.compute_advantages_and_returns(batches):
            np.testing.assert_allclose(experience.advantages[:, 3], expected[experience.index], atol=1e-6)


def test_integration_openrlhf_length_penalty_comes_before_the_baseline(openrlhf):
    args = arguments(reward={"stop_properly_penalty_coef": 0.5})
    samples = rollout(openrlhf, [1.0, 1.0], ["p", "p"], truncated=[True, False])
    found = advantages_of(make_trainer(AdvantageEstimator("rloo"), args), samples, 0)
    np.testing.assert_allclose(found, [-0.5, 0.5])


def test_integration_openrlhf_best_checkpoint_has_the_state_and_one_without_is_refused(tmp_path, openrlhf):
    args = arguments(ckpt={"path": str(tmp_path), "save_steps": 100})
    first = make_trainer(kae(), args)
    assert first.init_checkpoint_states()["global_step"] == 0
    advantages_of(first, rollout(openrlhf, [1.0, 0.0], ["p", "p"]), 0)
    first.save_best_checkpoint({"pass1": 0.5}, 1, {})
    first.save_best_checkpoint({"pass1": 0.4}, 2, {})
    assert sorted(path.name for path in (tmp_path / "_actor").iterdir()) == ["best_global_step1"]
    second = make_trainer(kae(), args)
    second.actor_model_group.states = {"global_step": 1}
    second.init_checkpoint_states()
    assert advantages_of(second, rollout(openrlhf, [1.0, 0.0], ["p", "p"]), 1)[0] != 1.0
    second.actor_model_group.states = {"global_step": 2}
    with pytest.raises(ValueError, match="saved without the history of 'kae'"):
        second.init_checkpoint_states()
    memoryless = make_trainer(AdvantageEstimator("rloo"), args)
    memoryless.actor_model_group.states = {"global_step": 2}
    memoryless.init_checkpoint_states()


def test_integration_openrlhf_status_has_the_baselines_metrics(openrlhf):
    trainer = make_trainer(kae())
    prompts = ["p", "p", "q", "q"]
    trainer.train_step(rollout(openrlhf, [1.0, 0.0, 1.0, 1.0], prompts), 0)
    status, step = trainer.train_step(rollout(openrlhf, [1.0, 0.0, 1.0, 1.0], prompts), 1)
    assert step == 2 and status["baseline/known_prompts"] == 1.0 and status["baseline/past_completions"] == 2.0


def test_integration_openrlhf_same_text_with_other_images_is_another_prompt(openrlhf):
    trainer = make_trainer(kae())
    first = rollout(openrlhf, [1.0, 0.0], ["p", "p"], images=["a.png", "b.png"])
    trainer.train_step(first, 0)
    trainer.train_step(rollout(openrlhf, [1.0, 0.0], ["p", "p"], images=["a.png", "c.png"]), 1)
    assert len(trainer.estimator.history) == 3


def test_integration_openrlhf_install_puts_the_trainer_where_its_command_looks(openrlhf, monkeypatch):
    asynchronous = importlib.import_module("openrlhf.trainer.ppo_trainer_async")
    for module, name in ((openrlhf.trainer, "PPOTrainer"), (asynchronous, "PPOTrainerAsync")):
        monkeypatch.setattr(module, name, getattr(module, name))  # comes back afterwards
    install(kae())
    installed = openrlhf.trainer.PPOTrainer.__ray_metadata__.modified_class(arguments())
    assert isinstance(installed, openrlhf.plain)
    assert isinstance(installed.experience_maker, BaselineExperienceMakerMixin)
    assert isinstance(installed.experience_maker, openrlhf.maker.RemoteExperienceMaker)
    with pytest.raises(ValueError, match=r"--train\.async_enable"):
        asynchronous.PPOTrainerAsync.remote("model")
    with pytest.raises(ValueError, match="method 'spo' does not average rewards"):  # before an actor starts
        install(AdvantageEstimator("spo"), weights="length")


def test_integration_openrlhf_groups_that_its_filter_dropped_enter_the_history_weighed_and_penalized(openrlhf):
    args = arguments(rollout={"n_samples_per_prompt": 2}, reward={"stop_properly_penalty_coef": 0.5})
    trainer, plain = make_trainer(kae(), args, weights="length"), kae()
    for step in range(3):
        kept = rollout(openrlhf, [1.0, 0.0, 1.0, 1.0], ["p", "p", "q", "q"])
        dropped = rollout(openrlhf, [1.0] * 4, ["r", "r", "p", "p"], truncated=[True, False, False, False])
        trainer.samples_generator._dropped = dropped
        found = advantages_of(trainer, kept, step)
        ids = [hash_prompt(prompt) for prompt in "ppqqrr"]
        expected = plain.step(ids[:4], [1.0, 0.0, 1.0, 1.0], step, weights=[2.0, 3.0, 4.0, 2.0])
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
        plain.observe(ids[4:], [0.5, 1.0], step, weights=[2.0, 3.0])  # p has its place in the step
    found, expected = (e.history.visits(ids[::2], 3) for e in (trainer.session.estimator, plain))
    assert found.total.tolist() == expected.total.tolist() and found.count.tolist() == expected.count.tolist()
    assert found.weight.tolist() == expected.weight.tolist()
    assert not trainer.samples_generator.take_dropped()


class Engine:
    """In place of a vLLM engine and of Ray's remote calls: every third group has rewards that are all alike."""

    def __init__(self):
        self.made = []
        self.get_num_unfinished_requests = SimpleNamespace(remote=lambda: 0)
        self.generate_responses = SimpleNamespace(remote=self.generate)

    def generate(self, *, prompt, label, num_samples, images, **options):
        alike = len(self.made) % 3 == 1
        rewards = [1.0 if alike else float(k % 2) for k in range(num_samples)]
        self.made.append((prompt, rewards))
        shared = {"prompt": prompt, "label": label, "images": images, "action_ranges": [(2, 5)], "truncated": False}
        tokens = {"observation_tokens": [1, 2, 3, 4, 5], "rollout_log_probs": None}
        return [shared | tokens | {"reward": reward, "scores": reward} for reward in rewards]


@pytest.mark.skipif(find_spec("openrlhf") is None, reason="needs OpenRLHF or a folder of its source")
def test_integration_openrlhf_own_generator_hands_over_what_its_filter_drops(openrlhf, monkeypatch):
    module, engine = importlib.import_module("openrlhf.trainer.ppo_utils.samples_generator"), Engine()
    ray = SimpleNamespace(get=lambda refs: refs, wait=lambda refs, **_: (refs[:1], refs[1:]))
    monkeypatch.setattr(module, "ray", ray)
    filtering = {"dynamic_filtering_enable": True, "dynamic_filtering_range": (0.0, 1.0)}
    args = arguments(algo=filtering, rollout={"n_samples_per_prompt": 2, "batch_size": 3})
    args.algo.advantage.is_correction_enable, args.vllm = False, SimpleNamespace(enable_sleep=False)
    prompts = [(None, [f"{row}+1="], [""], [None]) for row in range(12)]

    def made(trainer, given):
        begin(trainer, given)
        tokenizer = MagicMock(pad_token_id=0)
        trainer.samples_generator = module.SamplesGenerator(trainer.strategy, prompts, None, tokenizer, [engine])

    monkeypatch.setattr(openrlhf.plain, "__init__", made)
    trainer = make_trainer(kae(), args)
    for step in range(2):
        samples, *_ = trainer.samples_generator.generate_samples(max_new_tokens=8)
        assert len(samples) == 3 * 2
        trainer.train_step(samples, step)
    history = trainer.session.estimator.history
    seen = [(hash_prompt(prompt), len(rewards), sum(rewards)) for prompt, rewards in engine.made]
    visits = history.visits([key for key, *_ in seen], 2)
    found = zip((key for key, *_ in seen), visits.count.sum(-1), visits.total.sum(-1), strict=True)
    assert [(key, int(count), float(total)) for key, count, total in found] == seen and len(seen) > 6
