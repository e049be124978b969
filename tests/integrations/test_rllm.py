"""rLLM: its registry and its collection of advantages; its own where its source is given, else written out from it."""

import asyncio
import importlib
import itertools
from importlib.util import find_spec
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

from kaestat import AdvantageEstimator, AsynchronousEstimator
from kaestat.integrations.rllm import register
from kaestat.integrations.shared import conformance
from kaestat.integrations.shared.prompt_ids import UnstablePromptIds
from tests.fakes import rllm_source
from tests.fakes.modules import put_in_place

NUMBER = itertools.count()
OWN = find_spec("rllm") is not None


@pytest.fixture(autouse=True)
def rllm(monkeypatch):
    """rLLM's modules, real or written out, with a registry that forgets what the test registered."""
    if not OWN:
        put_in_place(monkeypatch, rllm_source.modules())
    advantage = importlib.import_module("rllm.trainer.algorithms.advantage")
    registry = advantage.RLLM_ADV_ESTIMATOR_REGISTRY
    before = dict(registry)
    yield SimpleNamespace(advantage=advantage, config=importlib.import_module("rllm.trainer.algorithms.config"))
    registry.clear()
    registry.update(before)


def group(task, rewards, *, role="solver", prompts=None, version=None, lengths=None, **fields):
    """A group of one role: each trajectory has a step for each of its policies."""
    types = importlib.import_module("rllm.types")
    trajectories = []
    for k, reward in enumerate(rewards):
        prompt = [1, 2, sum(map(ord, task))] if prompts is None else prompts[k]
        versions = version if isinstance(version, list) else [version]
        length = 2 if lengths is None else lengths[k]
        steps = [
            types.Step(prompt_ids=prompt + [9] * turn, response_ids=[7] * length, weight_version=policy)
            for turn, policy in enumerate(versions)
        ]
        trajectories.append(types.Trajectory(name=role, steps=steps, reward=reward, task={"row": task} | fields))
    return types.TrajectoryGroup(trajectories=trajectories, group_id=f"{next(NUMBER)}:{role}")


def collect(rllm, groups, **options):
    """rLLM's way from groups to the advantage on every step."""
    options = {"estimator": rllm.config.rLLMAdvantageEstimator("other")} | options
    config = rllm.config.AlgorithmConfig(**options)
    metrics = rllm.advantage.collect_reward_and_advantage_from_trajectory_groups(groups, config)
    found = []
    for each in groups:
        for trajectory in each.trajectories:
            advantages = {step.advantage for step in trajectory.steps}
            assert len(advantages) == 1
            found += advantages
    return np.array(found), metrics


def kae(order="strict"):
    return (AsynchronousEstimator if order == "any" else AdvantageEstimator)("kae", bandwidth=5.0)


class RllmAdapter:
    """Conformance rows as groups; there are no padding rows, and groups differ in size where rows are masked."""

    def __init__(self, estimator):
        self.baseline = register(estimator, f"kaestat{next(NUMBER)}")

    def late_advantages(self, rows):
        """rLLM's fully asynchronous trainer: a call for each group."""
        found = np.zeros(len(rows.uids))
        for uid in dict.fromkeys(rows.uids):
            own = [row for row in range(len(rows.uids)) if rows.uids[row] == uid]
            prompts = [list(rows.prompts[row].encode()) for row in own]
            newest = int(rows.version[own[0]])
            versions = [max(newest - 1, 0), newest]  # of two turns
            late = group(uid, rows.rewards[own].tolist(), prompts=prompts, version=versions)
            found[own] = self.baseline([rows.rewards[own]], None, traj_groups=[late])[0][0]
        return found

    def advantages(self, rows):
        real = [row for row in range(len(rows.uids)) if not rows.padding[row]]
        members = {uid: [row for row in real if rows.uids[row] == uid] for uid in dict.fromkeys(rows.uids)}
        kept = [own for own in members.values() if own]
        groups = [
            group(str(own), rows.rewards[own].tolist(), prompts=[list(rows.prompts[row].encode()) for row in own])
            for own in kept
        ]
        columns = [rows.rewards[own] for own in kept]
        found = np.zeros(len(rows.uids))
        for own, advantages in zip(kept, self.baseline(columns, None, traj_groups=groups)[0], strict=True):
            found[own] = advantages
        return found

    def state(self):
        return self.baseline.session.state_dict()

    def restore(self, state):
        self.baseline.session.load_state_dict(state)


# rLLM tells no step, so that one which comes a second time cannot be known for it.
CHECKS = [check for check in conformance.CHECKS if check is not conformance.replayed_step]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_integration_rllm_conforms(check):
    check(RllmAdapter)


def test_integration_rllm_on_policy_steps_are_calls_and_roles_have_prompts_of_their_own(rllm):
    baseline, plain = register(kae()), kae()
    rng = np.random.default_rng(0)
    for step in range(6):
        tasks = ["abcd"[k] for k in rng.permutation(4)[:3]]
        pairs = itertools.product(["solver", "judge"], tasks)
        rewards = {pair: (rng.random(3) < 0.5).astype(float) for pair in pairs}
        groups = [group(task, own.tolist(), role=role) for (role, task), own in rewards.items()]
        found, _ = collect(rllm, groups)
        expected = [plain.step([key] * 3, own, step) for key, own in rewards.items()]
        np.testing.assert_allclose(found, np.concatenate(expected), atol=1e-12)
    assert baseline.session.estimator.last_step == 5 and baseline.session.metrics["baseline/known_prompts"] > 0


@pytest.mark.parametrize(
    ("name", "theirs"), [("dr_grpo", ("grpo", False)), ("grpo", ("grpo", True)), ("rloo", ("rloo", False))]
)
def test_integration_rllm_agrees_with_rllms_own_estimator_of_the_name(rllm, name, theirs):
    rng = np.random.default_rng(1)
    rewards = [rng.random(4).tolist() for _ in range(5)]
    register(AdvantageEstimator(name))
    found, _ = collect(rllm, [group("abcde"[k], own) for k, own in enumerate(rewards)])
    estimator, std = rllm.config.rLLMAdvantageEstimator(theirs[0]), theirs[1]
    groups = [group("abcde"[k], own) for k, own in enumerate(rewards)]
    expected, _ = collect(rllm, groups, estimator=estimator, norm_adv_by_std_in_grpo=std)
    np.testing.assert_allclose(found, expected, rtol=1e-5 if not std else 0.2)


def test_integration_rllm_name_of_the_configuration_is_read_as_other_and_roles_take_any_name(rllm):
    assert rllm.config.rLLMAdvantageEstimator("kaestat") == "other"
    register(AdvantageEstimator("rloo"))
    register(AdvantageEstimator("none"), "kaestat_none")
    groups = [group("a", [1.0, 0.0]), group("a", [1.0, 0.0], role="judge")]
    found, metrics = collect(rllm, groups, estimator_map={"judge": "kaestat_none"})
    assert found.tolist() == [1.0, -1.0, 1.0, 0.0] and metrics["advantage/judge/mean"] == 0.5
    with pytest.raises(ValueError, match="has an estimator 'other' already"):
        register(AdvantageEstimator("rloo"))


def test_integration_rllm_saved_history_goes_on_with_its_policies_counted_on(rllm, tmp_path):
    first = register(kae(order="any"), "first")
    for policy in (0, 2, 3):
        collect(rllm, [group("a", [1.0, 0.0], version=policy)], estimator="first")
    first.save(tmp_path / "state")
    second = register(kae(order="any"), "second")
    second.load(tmp_path / "state")
    collect(rllm, [group("a", [1.0, 1.0], version=0)], estimator="second")
    collect(rllm, [group("a", [0.0, 1.0], version=1)], estimator="second")
    history = second.session.estimator.history
    visits = history.visits(list(history.columns.row), 5)
    steps = {5 - int(lag): int(n) for lag, n in zip(visits.lag[0], visits.count[0], strict=True) if n}
    assert steps == {0: 2, 2: 2, 3: 4, 4: 2}  # a new process begins with policy 0, the newest there was
    strict = register(kae(), "strict")
    for _ in range(3):
        collect(rllm, [group("a", [1.0, 0.0])], estimator="strict")
    strict.save(tmp_path / "strict")
    again = register(kae(), "again")
    again.load(tmp_path / "strict")
    collect(rllm, [group("a", [1.0, 0.0])], estimator="again")
    assert again.session.estimator.last_step == 3


@pytest.mark.parametrize("method", ["opo", "kae"])
def test_integration_rllm_lengths_are_the_tokens_that_the_policy_sampled(rllm, method):
    register(AdvantageEstimator(method), weights="length")
    found, _ = collect(rllm, [group("a", [1.0, 0.0, 1.0], version=[None, None], lengths=[2, 5, 3])])
    expected = AdvantageEstimator(method).step(["a"] * 3, [1.0, 0.0, 1.0], 0, weights=[4, 10, 6])
    np.testing.assert_allclose(found, expected)


def test_integration_rllm_prompts_by_a_key_of_the_task_and_what_is_no_prompt_is_refused(rllm):
    changing = [[[1, 2], [1, 3]], [[4], [5]]]
    register(kae(), "keyed", task_key="row")
    for prompts in changing:
        collect(rllm, [group("a", [1.0, 0.0], prompts=prompts)], estimator="keyed")
    keyed = rllm.advantage.RLLM_ADV_ESTIMATOR_REGISTRY["keyed"].session
    assert keyed.metrics["baseline/known_prompts"] == 1.0
    register(kae(), "tokens")
    for groups, message in (
        ([group("a", [1.0, 0.0], prompts=changing[0])], "2 different prompts"),
        ([group("a", [1.0, 0.0], prompts=[[], []])], "no prompt_ids"),
    ):
        with pytest.raises(UnstablePromptIds, match=message):
            collect(rllm, groups, estimator="tokens")
    register(kae(), "missing", task_key="id")
    with pytest.raises(UnstablePromptIds, match="has no 'id'"):
        collect(rllm, [group("a", [1.0, 0.0])], estimator="missing")
    register(AdvantageEstimator("rloo"), "memoryless")
    found, _ = collect(rllm, [group("a", [1.0, 0.0], prompts=changing[0])], estimator="memoryless")
    assert found.tolist() == [1.0, -1.0]


def test_integration_rllm_order_that_is_not_the_trainers_is_refused(rllm):
    register(kae(), "strict")
    with pytest.raises(ValueError, match="take a kaestat"):
        collect(rllm, [group("a", [1.0, 0.0], version=3)], estimator="strict")
    register(kae(order="any"), "any")
    with pytest.raises(ValueError, match="does not count its policies"):
        collect(rllm, [group("a", [1.0, 0.0], version=0), group("b", [1.0], version=0)], estimator="any")
    with pytest.raises(ValueError, match="has no weight_version"):
        collect(rllm, [group("a", [1.0, 0.0])], estimator="any")
    with pytest.raises(ValueError, match="0 groups for rewards of 1"):
        rllm.advantage.RLLM_ADV_ESTIMATOR_REGISTRY["any"]([np.ones(2)], None)


@pytest.mark.skipif(not OWN, reason="needs a folder of rLLM's source")
def test_integration_rllm_own_buffer_records_late_groups_and_those_that_it_filters(rllm):
    types, buffers = (importlib.import_module(name) for name in ("rllm.types", "rllm.trainer.buffer"))
    config = rllm.config
    baseline, plain = register(kae(order="any")), kae(order="any")
    options = config.AlgorithmConfig(estimator=config.rLLMAdvantageEstimator("kaestat"))
    coordinator = MagicMock()
    buffer = buffers.TrajectoryGroupBuffer(
        3,
        coordinator,
        MagicMock(),
        options,
        config.TransformConfig(),
        config.CompactFilteringConfig(),
        config.RejectionSamplingConfig(mode="none", filter_uniform_groups=True, min_trajs_per_group=1),
    )

    async def run():
        rng, now, trained = np.random.default_rng(3), -1, 0
        for number, policy in enumerate([0, 0, 1, 0, 2, 2, 1, 3]):
            task = "abc"[number % 3]
            rewards = [1.0] * 3 if number in (1, 5) else (rng.random(3) < 0.5).astype(float).tolist()
            for k, reward in enumerate(rewards):
                step = types.Step(prompt_ids=[1, ord(task)], response_ids=[7, 8], weight_version=policy)
                trajectory = types.Trajectory(name="solver", steps=[step], reward=reward)
                await buffer.add_episode(f"t{number}", types.Episode(id=f"t{number}:{k}", trajectories=[trajectory]))
            now = max(now, policy)
            expected = plain.step([task] * 3, rewards, now, version=[policy] * 3)
            if (np.abs(expected) > 1e-8).any():
                trained += 1
                batch = await buffer.get()
                found = [t.steps[0].advantage for g in batch.groups for t in g.trajectories]
                np.testing.assert_array_equal(found, expected)
        return trained

    trained = asyncio.run(run())
    assert coordinator.on_group_filtered.call_count == 8 - trained >= 1
    history = baseline.session.estimator.history
    assert history.visits(list(history.columns.row), 4).count.sum() == 24
