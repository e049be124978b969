"""The recipes of examples/frameworks: all conform, and each does what its page says.

They run on the frameworks' own classes where these are installed or a folder of their source is given, else on those
written out from it.
"""

import asyncio
import importlib
import itertools
import sys
from dataclasses import make_dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from kaestat import AdvantageEstimator, AsynchronousEstimator
from kaestat.integrations.shared import conformance
from kaestat.integrations.shared.session import TrainerSession
from tests.fakes import openrlhf_source, prime_rl_source, rllm_source, skyrl_source, slime_source
from tests.fakes.modules import add_module, put_in_place
from tests.helpers.upstream import EmptyPackages

FOLDER = Path(__file__).parents[2] / "examples" / "frameworks"
GPU_PACKAGES = ("flash_attn", "deepspeed", "vllm", "bitsandbytes", "optimum", "torchmetrics", "ring_flash_attn")
INSTALLED = {name for name in ("skyrl", "openrlhf", "rllm") if find_spec(name) is not None}
NUMBER = itertools.count()
# SkyRL saves its configuration with dataclasses.asdict.
SkyRLConfig = make_dataclass("SkyRLConfig", ["trainer", "generator", ("data", object, None)])


def recipe(name):
    """A fresh copy of a recipe, as a user imports it."""
    spec = spec_from_file_location(f"kae_{name}", FOLDER / f"kae_{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kae(kind=AdvantageEstimator):
    return kind("kae", bandwidth=5.0)


class Slime:
    """Conformance rows as samples of slime's rollout manager; by the prompts' texts, or by ids in their metadata."""

    not_checked = frozenset()

    def __init__(self, estimator, folder, monkeypatch):
        put_in_place(monkeypatch, slime_source.modules())
        self.module, self.args, self.done = recipe("slime"), slime_source.slime_args(str(folder)), -1
        self.module.session = TrainerSession(estimator)
        self.source = self.module.DataSource(self.args)

    def advantages(self, rows):
        self.module.generate_rollout(self.args, rows.step, self.source)
        samples = []
        for k, uid in enumerate(rows.uids):
            metadata = {} if rows.ids[k] is None else {"id": rows.ids[k]}
            sample = slime_source.Sample(uid, k, prompt=rows.prompts[k], metadata=metadata)
            sample.reward, sample.remove_sample = float(rows.rewards[k]), bool(rows.padding[k])
            samples.append(sample)
        raw, found = self.module.advantages(self.args, samples)
        assert raw == rows.rewards.tolist()
        self.done = rows.step
        return np.array(found)

    def state(self):
        self.source.save(self.done)
        return self.done

    def restore(self, state):
        self.source.load(state)


class SkyRL:
    """Conformance rows through converting, padding and advantages; a padding row is a copy of row 0."""

    not_checked = frozenset()

    def __init__(self, estimator, folder, monkeypatch):
        if "skyrl" not in INSTALLED:
            put_in_place(monkeypatch, skyrl_source.modules())
        else:
            made = {}
            add_module(made, "skyrl.train.entrypoints.main_base", BasePPOExp=object, validate_cfg=None)
            put_in_place(monkeypatch, {"skyrl.train.entrypoints.main_base": made["skyrl.train.entrypoints.main_base"]})
            trainer = importlib.import_module("skyrl.train.trainer")
            for name in ("compute_prompt_mini_batch_boundaries", "compute_prompt_boundaries"):  # need groups in order
                monkeypatch.setattr(trainer, name, lambda *args: [], raising=False)
        self.trainer = self.made(recipe("skyrl"), folder)
        self.trainer.session = TrainerSession(estimator)

    def made(self, module, folder):
        """A trainer that never was on a GPU: what ``__init__`` and the configuration set, as far as it is used."""
        algorithm = SimpleNamespace(
            advantage_estimator="grpo",
            max_seq_len=None,
            off_policy_correction=SimpleNamespace(tis_ratio_type=None, sequence_mask_metric=None),
            gamma=1.0,
            lambd=1.0,
            grpo_norm_by_std=True,
        )
        config = SimpleNamespace(
            algorithm=algorithm,
            critic=SimpleNamespace(model=SimpleNamespace(path=None)),
            train_batch_size=6,
            policy_mini_batch_size=6,
            ckpt_path=str(folder),
            ckpt_interval=1,
            resume_mode="latest",
        )
        trainer = object.__new__(module.BaselineTrainer)
        trainer.cfg = SkyRLConfig(config, SimpleNamespace(n_samples_per_prompt=4, step_wise_trajectories=False))
        trainer.tokenizer = SimpleNamespace(pad_token_id=0)
        trainer.dispatch, trainer.train_dataloader = MagicMock(), MagicMock()
        trainer.train_dataloader.state_dict.return_value = {}
        trainer.resume_mode = importlib.import_module("skyrl.train.trainer").ResumeMode.LATEST
        trainer.global_step, trainer.all_metrics, trainer.all_timings = 1, {}, {}
        trainer._cleanup_old_checkpoints = lambda: None
        return trainer

    def step(self, rewards, uids, prompts, *, last_steps=None, n_padding=0):
        """From the generator's output to advantages, as in ``RayPPOTrainer.train``."""
        size, trainer = len(uids), self.trainer
        trainer.dispatch.get_lcm_dp_size.return_value = size + n_padding if n_padding else 1
        trainer.cfg.generator.step_wise_trajectories = last_steps is not None
        lengths = [1 + row % 3 for row in range(size)]
        output = {
            "prompt_token_ids": [list(prompt) for prompt in prompts],
            "response_ids": [[9] * length for length in lengths],
            "rewards": [[0.0] * (length - 1) + [float(r)] for length, r in zip(lengths, rewards, strict=True)],
            "loss_masks": [[1] * length for length in lengths],
        }
        if last_steps is not None:
            output["is_last_step"] = list(last_steps)
        data = trainer.convert_to_training_input(output, list(uids))
        data["values"] = None
        data = trainer.compute_advantages_and_returns(data)
        assert len(data["advantages"]) == size + n_padding and torch.equal(data["advantages"], data["returns"])
        advantages = torch.where(data["response_mask"] > 0, data["advantages"], torch.nan)
        assert torch.equal(data["advantages"], torch.nan_to_num(advantages))  # nothing outside the responses
        highest = torch.nan_to_num(advantages, nan=-torch.inf).amax(dim=-1)
        assert torch.equal(highest, torch.nan_to_num(advantages, nan=torch.inf).amin(dim=-1))  # the same at every token
        return highest.numpy()

    def advantages(self, rows):
        real = np.flatnonzero(~rows.padding)
        self.trainer.global_step = rows.step + 1
        prompts = [list(rows.prompts[row].encode()) for row in real]
        uids = [str(rows.ids[row]) for row in real]
        return self.step(rows.rewards[real], uids, prompts, n_padding=int(rows.padding.sum()))

    def state(self):
        return self.trainer.save_checkpoints()

    def restore(self, state):
        assert self.trainer.load_checkpoints()[0] == 3


class OpenRLHF:
    """Conformance rows as micro-batches of one step, which are not in order; there are no padding rows."""

    not_checked = frozenset()

    def __init__(self, estimator, folder, monkeypatch, *, kl=0.0, **options):
        if "openrlhf" not in INSTALLED:
            put_in_place(monkeypatch, openrlhf_source.modules())
        else:
            monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, EmptyPackages(GPU_PACKAGES)])
        maker = importlib.import_module("openrlhf.trainer.ppo_utils.experience_maker").RemoteExperienceMaker
        trainer = importlib.import_module("openrlhf.trainer.ppo_trainer")
        monkeypatch.setattr(trainer, "ray", SimpleNamespace(get=lambda refs: refs), raising=False)
        self.Experience = importlib.import_module("openrlhf.trainer.ppo_utils.experience").Experience
        plain = trainer.PPOTrainer.__ray_metadata__.modified_class
        reward = SimpleNamespace(
            clip_range=None, overlong_buffer_len=None, overlong_penalty_factor=1.0, stop_properly_penalty_coef=0.5
        )
        rollout, ckpt = SimpleNamespace(n_samples_per_prompt=4), SimpleNamespace(save_steps=1, load_enable=True)
        ckpt.path, ckpt.best_metric_key = str(folder), "pass1"
        args = SimpleNamespace(reward=reward, rollout=rollout, ckpt=ckpt, logger=SimpleNamespace(logging_steps=100))
        args.train, args.algo = (SimpleNamespace(async_enable=False), SimpleNamespace(dynamic_filtering_enable=False))
        vars(args.train).update(options)

        def begin(self):
            self.args, self.actor_model_group, self.critic_model_group = args, MagicMock(), None
            self.best_eval_metric_key, self.best_eval_metric_value, self._latest_eval_metric_value = "pass1", -1.0, None
            self.experience_maker = object.__new__(maker)
            vars(self.experience_maker).update(
                strategy=SimpleNamespace(args=args), args=args, kl_ctl=SimpleNamespace(value=kl)
            )

        def train_step(self, samples, step):
            return {"experiences": self.experience_maker.compute_advantages_and_returns(samples)}, step + 1

        monkeypatch.setattr(plain, "__init__", begin)
        monkeypatch.setattr(plain, "train_step", train_step, raising=False)
        Path(folder, "_actor").mkdir(exist_ok=True)
        module = recipe("openrlhf")
        module.AdvantageEstimator = lambda: estimator
        self.trainer = module.BaselineTrainer()

    def step(self, rewards, prompts, step, truncated=(), images=None):
        """Micro-batches of 5 completions, the last first, as the policy update gets them."""
        batches = []
        for first in range(0, len(rewards), 5):
            rows = range(first, min(first + 5, len(rewards)))
            mask = torch.zeros(len(rows), 8, dtype=torch.long)
            for place, row in enumerate(rows):
                mask[place, 3 : 5 + row % 3] = 1
            batch = self.Experience(
                action_mask=mask,
                kl=mask.float(),
                rewards=torch.tensor([float(rewards[row]) for row in rows]),
                truncated=torch.tensor([row in truncated for row in rows]),
                index=list(rows),
                prompts=[prompts[row] for row in rows],
                images=[] if images is None else [images[row] for row in rows],
            )
            batches.insert(0, batch)
        status, after = self.trainer.train_step(batches, step)
        assert after == step + 1
        found = [None] * len(rewards)
        for experience in status["experiences"]:
            assert experience.kl is None and torch.equal(experience.advantages, experience.returns)
            for place, row in enumerate(experience.index):
                found[row] = experience.advantages[place][experience.action_mask[place].bool()].tolist()
        return found, status

    def advantages(self, rows):
        real = np.flatnonzero(~rows.padding)
        tokens, _ = self.step(rows.rewards[real], [rows.prompts[row] for row in real], rows.step)
        found, self.done = np.zeros(len(rows.ids)), rows.step + 1
        found[real] = [own[0] for own in tokens]
        assert all(len(set(own)) == 1 for own in tokens)
        return found

    def state(self):
        self.trainer.save_logs_and_checkpoints(self.done, {}, {"global_step": self.done})
        return self.done

    def restore(self, state):
        self.trainer.actor_model_group.async_run_method.return_value = [{"global_step": state}]
        self.trainer.init_checkpoint_states()


class RLLM:
    """Conformance rows as groups; there are no padding rows."""

    not_checked = frozenset({"replayed_step"})  # rLLM passes no step, so one that comes twice looks like two

    def __init__(self, estimator, folder, monkeypatch):
        if "rllm" not in INSTALLED:
            put_in_place(monkeypatch, rllm_source.modules())
        self.module, self.name = recipe("rllm"), f"kaestat{next(NUMBER)}"
        self.baseline, self.file = self.register(estimator, self.name), folder / "state"

    def register(self, estimator, name):
        return self.module.register(estimator, name)

    def group(self, rewards, prompts, *, role="solver", versions=(None,)):
        """A group of one role: each trajectory has a turn for each of its policies."""
        types = importlib.import_module("rllm.types")
        trajectories = []
        for prompt, reward in zip(prompts, rewards, strict=True):
            tokens = list(prompt.encode())
            turns = [types.Step(prompt_ids=tokens, response_ids=[7], weight_version=policy) for policy in versions]
            trajectories.append(types.Trajectory(name=role, steps=turns, reward=reward))
        return types.TrajectoryGroup(trajectories=trajectories, group_id=f"{next(NUMBER)}:{role}")

    def collect(self, groups, name=None):
        """rLLM's way from groups to the advantage on every turn."""
        advantage = importlib.import_module("rllm.trainer.algorithms.advantage")
        config = importlib.import_module("rllm.trainer.algorithms.config").AlgorithmConfig(estimator=name or self.name)
        advantage.collect_reward_and_advantage_from_trajectory_groups(groups, config)
        return [trajectory.steps[-1].advantage for group in groups for trajectory in group.trajectories]

    def advantages(self, rows):
        members = {uid: np.flatnonzero((np.array(rows.uids) == uid) & ~rows.padding) for uid in rows.uids}
        of_groups = [own for own in members.values() if len(own)]
        groups = [self.group(rows.rewards[own], [rows.prompts[row] for row in own]) for own in of_groups]
        found = np.zeros(len(rows.uids))
        found[np.concatenate(of_groups)] = self.collect(groups)
        return found

    def state(self):
        self.baseline.save(self.file)

    def restore(self, state):
        self.baseline.load(self.file)


class PrimeRL:
    """Conformance rows as groups that are scored one after the other."""

    # Each group is a step of its own, and counted: a prompt cannot have two groups at one, and no step comes twice.
    not_checked = frozenset({"repeated_prompt", "replayed_step"})

    def __init__(self, estimator, folder, monkeypatch):
        modules = prime_rl_source.modules()
        put_in_place(monkeypatch, modules)
        module = recipe("prime_rl")
        module.AdvantageEstimator = lambda method: estimator
        algorithm = modules["prime_rl.orchestrator.algo"].ALGORITHM_CLASSES["grpo"]
        self.algorithm = algorithm(SimpleNamespace(length_penalty=None), None)
        env = SimpleNamespace(name="math", algorithm=self.algorithm)
        self.source = modules["prime_rl.orchestrator.orchestrator"].TrainSource([env])

    def score(self, tasks, rewards, **options):
        """Advantages of a group's tokens; a task is its key and its hash."""
        group = prime_rl_source.group_of(tasks, rewards, **options)
        asyncio.run(self.algorithm.finalize_group(group))
        return [episode.traces[0].nodes[0].advantages for episode in group]

    def advantages(self, rows):
        """As if each group came at the kit's step, where the recipe counts groups."""
        session, found = self.algorithm.session, np.zeros(len(rows.ids))
        self.algorithm.session = SimpleNamespace(
            advantages=session.advantages, estimator=SimpleNamespace(last_step=rows.step - 1)
        )
        for uid in dict.fromkeys(rows.uids):
            own = np.flatnonzero((np.array(rows.uids) == uid) & ~rows.padding)
            tasks = [(rows.ids[row], rows.prompts[row]) for row in own]
            found[own] = [each[0] for each in self.score(tasks, rows.rewards[own]) if each]
        self.algorithm.session = session
        return found

    def state(self):
        return self.source.state_dict()

    def restore(self, state):
        self.source.load_state_dict(state)


WRAPPERS = [Slime, SkyRL, OpenRLHF, RLLM, PrimeRL]


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Make a recipe's wrapper; what is registered with a framework is forgotten after the test."""

    def make(wrapper, estimator=None, **options):
        return wrapper(kae() if estimator is None else estimator, tmp_path, monkeypatch, **options)

    yield make
    advantage = sys.modules.get("rllm.trainer.algorithms.advantage")
    for name in list(getattr(advantage, "RLLM_ADV_ESTIMATOR_REGISTRY", ())):
        if str(name).startswith("kaestat"):
            del advantage.RLLM_ADV_ESTIMATOR_REGISTRY[name]


@pytest.mark.filterwarnings("ignore:.*no prompt has come back")  # groups are counted as steps in prime-rl
@pytest.mark.parametrize(
    ("wrapper", "check"),
    [pair for pair in itertools.product(WRAPPERS, conformance.CHECKS) if pair[1].__name__ not in pair[0].not_checked],
    ids=lambda each: each.__name__,
)
def test_recipes_conform(wrapper, check, made):
    check(lambda estimator: made(wrapper, estimator))


@pytest.mark.parametrize("wrapper", [Slime, SkyRL, OpenRLHF, PrimeRL])
def test_recipes_refuse_a_checkpoint_without_the_history(wrapper, made, tmp_path):
    run = made(wrapper)
    if wrapper is SkyRL:
        super(type(run.trainer), run.trainer).save_checkpoints()
        with pytest.raises(FileNotFoundError, match="kaestat_state"):
            run.trainer.load_checkpoints()
        return
    state = {"rng": None, "envs": 3} if wrapper is PrimeRL else 7
    with pytest.raises(ValueError, match="saved without the history of 'kae'"):
        run.restore(state)


def test_slime_checkpoint_of_a_rollout_is_written_after_the_next_one(made):
    ahead, resumed = made(Slime), made(Slime)  # train_async.py

    def step(run, number):
        run.module.generate_rollout(run.args, number, run.source)
        samples = [slime_source.Sample(k, k, prompt="p", reward=float(k == number % 2)) for k in range(2)]
        return run.module.advantages(run.args, samples)[1]

    found = [step(ahead, number) for number in range(3)]
    ahead.source.save(1)
    resumed.source.load(1)
    assert step(resumed, 2) == found[2]


def test_slime_counts_no_removed_sample_and_logs_the_step_before(made):
    run = made(Slime, AdvantageEstimator("rloo"))
    samples = [slime_source.Sample(0, k, prompt="p", reward=float(k)) for k in range(3)]
    samples.append(slime_source.Sample(0, 3, prompt="p", reward=None, remove_sample=True))
    raw, found = run.module.advantages(run.args, samples)
    assert raw == [0.0, 1.0, 2.0, None]
    np.testing.assert_allclose(found, [-1.5, 0.0, 1.5, 0.0])
    output = run.module.generate_rollout(run.args, 1, run.source)
    assert output.metrics["rollout/x"] == 1.0 and output.metrics["baseline/nonzero_advantages"] == pytest.approx(2 / 3)
    samples[3].remove_sample = False
    with pytest.raises(ValueError, match="finite"):
        run.module.advantages(run.args, samples)


@pytest.mark.parametrize("n_padding", [0, 2])
def test_skyrl_trajectory_of_several_steps_is_one_completion_with_its_last_reward(made, n_padding):
    run = made(SkyRL, AdvantageEstimator("dr_grpo"))
    last, uids = [False, True, True, False, False, True, True], list("0001111")
    rewards, prompts = [0.3, 1.0, 0.0, 0.3, 0.3, 1.0, 1.0], [[1], [1, 5], [1], [2], [2, 6], [2, 6, 7], [2]]
    found = run.step(rewards, uids, prompts, last_steps=last, n_padding=n_padding)
    np.testing.assert_allclose(found, [0.5, 0.5, -0.5, 0.0, 0.0, 0.0, 0.0] + [0.0] * n_padding)
    assert run.trainer.all_metrics["baseline/dead_groups"] == 0.5


def test_openrlhf_subtracts_the_kl_penalty_after_the_baseline_and_length_penalties_before(made):
    run = made(OpenRLHF, AdvantageEstimator("rloo"), kl=0.5)
    (cut, whole), status = run.step([1.0, 1.0], ["p", "p"], 0, truncated=[0])  # a truncated completion has half of it
    assert cut == [-0.5 - 1.0, -0.5 - 0.5] and whole == [0.5 - 1.5, 0.5 - 1.0, 0.5 - 0.5]
    assert status["baseline/nonzero_advantages"] == 1.0


def test_openrlhf_knows_images_saves_with_the_best_checkpoint_and_refuses_async(made, tmp_path):
    run = made(OpenRLHF)
    for step, second in enumerate(["b.png", "c.png"]):
        run.step([1.0, 0.0], ["p", "p"], step, images=["a.png", second])
    assert len(run.trainer.session.estimator.history) == 3
    run.trainer.save_best_checkpoint({"pass1": 0.5}, 2, {})
    made(OpenRLHF).restore(2)
    with pytest.raises(ValueError, match="async_enable"):
        made(OpenRLHF, async_enable=True)


def test_rllm_steps_are_calls_and_roles_have_prompts_of_their_own(made):
    run, plain, rng = made(RLLM), kae(), np.random.default_rng(0)
    for step in range(6):
        pairs = itertools.product(["solver", "judge"], ["abcd"[k] for k in rng.permutation(4)[:3]])
        rewards = {pair: (rng.random(3) < 0.5).astype(float) for pair in pairs}
        groups = [run.group(own, [task] * 3, role=role) for (role, task), own in rewards.items()]
        expected = [plain.step([key] * 3, own, step) for key, own in rewards.items()]
        np.testing.assert_allclose(run.collect(groups), np.concatenate(expected), atol=1e-12)
    assert run.baseline.session.estimator.last_step == 5


def test_rllm_records_late_groups_under_the_newest_policy_of_their_turns(made):
    run, plain = made(RLLM, kae(AsynchronousEstimator)), kae(AsynchronousEstimator)
    rng, newest = np.random.default_rng(3), 0
    for policy in (0, 2, 1, 3, 1, 4):
        rewards, newest = (rng.random(3) < 0.5).astype(float), max(newest, policy)
        expected = plain.step(["a"] * 3, rewards, newest, version=[policy] * 3)
        found = run.collect([run.group(rewards, ["a"] * 3, versions=(max(policy - 1, 0), policy))])
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_prime_rl_counts_groups_and_leaves_those_without_a_scored_trace_out(made):
    run, plain = made(PrimeRL), kae()
    for step, key in enumerate("abba"):
        run.score([("c", "c")], [1.0], error=True)
        tokens = run.score([(key, key)] * 2, [1.0, 0.0])
        expected = plain.step([key] * 2, [1.0, 0.0], step)
        np.testing.assert_allclose(tokens, np.repeat(expected[:, None], 2, axis=1))
    with pytest.raises(ValueError, match="length_penalty"):
        type(run.algorithm)(SimpleNamespace(length_penalty=object()), None)
