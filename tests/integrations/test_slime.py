"""slime: its rollout manager's calls and its data source, written out; its samples are its own where it is there."""

from __future__ import annotations

import copy
import os
import sys
import types

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.integrations import slime as kaestat_slime
from kaestat.integrations.shared import conformance
from kaestat.integrations.shared.prompt_ids import UnstablePromptIds, hash_prompt
from kaestat.integrations.slime import RewardPostProcess
from kaestat.integrations.slime_samples import STEP_KEY
from tests.fakes.slime_source import RolloutFnTrainOutput, Sample, base_types


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


def slime_args(**changes):
    defaults = dict(
        reward_key=None,
        advantage_estimator="grpo",
        rollout_batch_size=6,
        n_samples_per_prompt=4,
        prompts=[f"What is 1{'0' * k}+1?" for k in range(9)],
    )
    return types.SimpleNamespace(**defaults | changes)


def samples_of(rows, args):
    """A conformance step as the rollout manager holds it: groups numbered on through the run, step stamped."""
    number = {uid: 100 * rows.step + k for k, uid in enumerate(dict.fromkeys(rows.uids))}
    samples = []
    for k, uid in enumerate(rows.uids):
        metadata = {STEP_KEY: rows.step} | ({} if rows.ids[k] is None else {"id": rows.ids[k]})
        samples.append(
            Sample(
                group_index=number[uid],
                index=1000 * rows.step + k,
                prompt=rows.prompts[k],
                reward=float(rows.rewards[k]),
                remove_sample=bool(rows.padding[k]),
                metadata=metadata,
            )
        )
    return samples


class SlimeAdapter:
    id_key = None

    def __init__(self, estimator, folder):
        self.hook, self.files = RewardPostProcess(estimator, id_key=self.id_key), {"save": folder, "load": folder}
        self.args, self.drawn_samples, self.done = slime_args(**self.files), [], -1
        self.source = self.hook.data_source(ListedDataSource)(self.args)

    def advantages(self, rows):
        samples = samples_of(rows, self.args)
        for sample, drawn in zip(samples, self.drawn_samples, strict=bool(self.drawn_samples)):
            sample.metadata |= drawn.metadata
        raw, advantages = self.hook(self.args, samples)
        assert raw == rows.rewards.tolist()
        self.done = rows.step
        return np.array(advantages)

    def advantages_beside(self, rows, dropped):
        self.args.dynamic_sampling_filter_path = "some.filter"
        kept, gone = (samples_of(each, self.args) for each in (rows, dropped))
        for sample in gone:
            sample.group_index, sample.index = sample.group_index + 50, sample.index + 500
        self.hook.observe_all(self.args, [kept, gone], None)
        return np.array(self.hook(self.args, kept)[1])

    def names(self, prompts):
        self.prompts = prompts
        return [hash_prompt(prompt) for prompt in prompts] if self.id_key is None else list(range(len(prompts)))

    def draw_from(self, sampler):
        self.hook.prompt_sampler = sampler
        self.args = slime_args(prompts=self.prompts, rollout_batch_size=4, rollout_seed=0, **self.files)
        self.source = self.hook.data_source(ListedDataSource)(self.args)

    def drawn(self, step):
        self.hook._rollout_id = step
        self.drawn_samples = [sample for group in self.source.get_samples(4) for sample in group]
        key = self.id_key
        return [hash_prompt(s.prompt) if key is None else s.metadata[key] for s in self.drawn_samples]

    def state_after(self, step):
        self.source.save(step)  # train_async.py scores a rollout before it saves the last one
        return step

    def state(self):
        return self.state_after(self.done)

    def restore(self, state):
        self.source.load(state)


class SlimeAdapterById(SlimeAdapter):
    id_key = "id"


@pytest.mark.parametrize("adapter", [SlimeAdapter, SlimeAdapterById])
@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_integration_slime_conforms(check, adapter, tmp_path):
    check(lambda estimator: adapter(estimator, str(tmp_path)))


@pytest.fixture
def manager(tmp_path):
    def make(hook, **changes):
        args = slime_args(save=str(tmp_path), load=str(tmp_path), **changes)
        return RolloutManager(args, hook, hook.with_step(generate_rollout), hook.data_source(RolloutDataSource))

    return make


def kae_hook():
    return RewardPostProcess(AdvantageEstimator("kae", bandwidth=5.0))


def test_integration_slime_resume_without_a_state_is_refused(manager):
    resumed = manager(kae_hook())
    with pytest.raises(ValueError, match="kaestat_fresh_history"):
        resumed.data_source.load(7)
    manager(kae_hook()).data_source.load(-1)  # a run that starts
    manager(kae_hook(), kaestat_fresh_history=True).data_source.load(7)
    manager(RewardPostProcess(AdvantageEstimator("rloo"))).data_source.load(7)


def test_integration_slime_without_the_step_a_history_is_refused_and_a_memoryless_method_works():
    samples = [Sample(0, k, prompt="2+2=", reward=float(k)) for k in range(3)]
    with pytest.raises(ValueError, match="step"):
        kae_hook()(slime_args(), samples)
    raw, advantages = RewardPostProcess(AdvantageEstimator("rloo"))(slime_args(), samples)
    assert raw == [0.0, 1.0, 2.0]
    np.testing.assert_allclose(advantages, [-1.5, 0.0, 1.5])


@pytest.mark.parametrize(("method", "std"), [("dr_grpo", False), ("grpo", True)])
def test_integration_slime_agrees_with_slimes_own_group_norm(method, std):
    rewards = np.random.default_rng(0).random((5, 4))
    samples = [Sample(k // 4, k, prompt=f"p{k // 4}", reward=float(r)) for k, r in enumerate(rewards.ravel())]
    centred = rewards - rewards.mean(-1, keepdims=True)
    expected = centred / (centred.std(-1, ddof=1, keepdims=True) + 1e-6) if std else centred
    _, advantages = RewardPostProcess(AdvantageEstimator(method))(slime_args(), samples)
    np.testing.assert_allclose(advantages, expected.ravel(), rtol=1e-12, atol=1e-12)


def test_integration_slime_two_groups_of_one_prompt_stay_two_groups_for_group_methods():
    samples = [Sample(k // 2, k, prompt="same", reward=float(r)) for k, r in enumerate([0, 1, 1, 1])]
    _, advantages = RewardPostProcess(AdvantageEstimator("dr_grpo"))(slime_args(), samples)
    np.testing.assert_allclose(advantages, [-0.5, 0.5, 0.0, 0.0])


def test_integration_slime_segments_of_one_completion_count_once_and_share_its_advantage():
    rollouts, rewards = [0, 0, 0, 1, 2], [1.0, 1.0, 1.0, 0.0, 1.0]
    samples = [
        Sample(0, None, prompt="p", reward=reward, rollout_id=rollout)
        for rollout, reward in zip(rollouts, rewards, strict=True)
    ]
    _, advantages = RewardPostProcess(AdvantageEstimator("rloo"))(slime_args(), samples)
    np.testing.assert_allclose(advantages, [0.5, 0.5, 0.5, -1.0, 0.5])
    samples[1].reward = 0.0
    with pytest.raises(ValueError, match="segments of rollout 0"):
        RewardPostProcess(AdvantageEstimator("rloo"))(slime_args(), samples)


def multi_agent_rollout(args, rollout_id, data_source, evaluation=False):
    """Rollouts split as in slime's examples/multi_agent: copies of the sample, each agent with words of its own."""
    groups, rng = data_source.get_samples(args.rollout_batch_size), np.random.default_rng(rollout_id)
    for group in groups:
        for k, sample in enumerate(group):
            reward, agents = float(rng.random() < 0.5), int(rng.integers(1, 4))
            segments = [copy.deepcopy(sample) for _ in range(agents)]
            for number, segment in enumerate(segments):
                segment.prompt = f"You are agent {number} in rollout {rollout_id}. {sample.prompt}"
                segment.reward, segment.rollout_id = reward, sample.index
            group[k] = segments
    return RolloutFnTrainOutput([list(kaestat_slime.flat(group)) for group in groups])


@pytest.mark.parametrize("method", ["kae", "rloo"])
def test_integration_slime_segments_with_prompts_of_their_own_are_known_by_the_data_sets(method, tmp_path):
    hook, plain = RewardPostProcess(AdvantageEstimator(method)), AdvantageEstimator(method)
    args = slime_args(save=str(tmp_path), load=None)
    rollouts = hook.with_step(multi_agent_rollout)
    source = hook.data_source(RolloutDataSource)(args)
    beside = RolloutDataSource(args)
    for step in range(4):
        samples = rollouts(args, step, source).samples
        _, found = hook(args, [sample for group in samples for sample in group])
        prompts = {s.index: s.prompt for group in beside.get_samples(args.rollout_batch_size) for s in group}
        rewards = {s.index: s.reward for group in samples for s in group}
        expected = plain.step([prompts[k] for k in rewards], list(rewards.values()), step)
        of_rollout = dict(zip(rewards, expected, strict=True))
        np.testing.assert_allclose(found, [of_rollout[s.index] for group in samples for s in group], atol=1e-12)
        assert len(found) > len(rewards)
    if method == "kae":
        assert set(hook.session(args).estimator.history.columns.row) == {hash_prompt(prompt) for prompt in args.prompts}


def test_integration_slime_segments_with_prompts_of_their_own_need_the_data_source():
    hook, args = RewardPostProcess(AdvantageEstimator("rloo")), slime_args()
    samples = hook.with_step(multi_agent_rollout)(args, 0, RolloutDataSource(args)).samples
    with pytest.raises(ValueError, match=r"rewards or prompts differ.*slime\.DataSource"):
        hook(args, [sample for group in samples for sample in group])


@pytest.mark.parametrize("index", [None, 3])
def test_integration_slime_removed_sample_without_a_reward_is_left_out(index):
    samples = [Sample(0, k, prompt="p", reward=float(k)) for k in range(3)]
    samples.append(Sample(0, index, prompt="p", reward=None, remove_sample=True))
    raw, advantages = RewardPostProcess(AdvantageEstimator("rloo"))(slime_args(), samples)
    assert raw[3] is None
    np.testing.assert_allclose(advantages, [-1.5, 0.0, 1.5, 0.0])
    samples[3].remove_sample = False
    with pytest.raises(ValueError, match="remove_sample"):
        RewardPostProcess(AdvantageEstimator("rloo"))(slime_args(), samples)


def test_integration_slime_refuses_what_would_train_on_a_wrong_history_or_baseline():
    stamped = {"metadata": {STEP_KEY: 0}}
    with pytest.raises(UnstablePromptIds, match="missing or empty"):  # --disable-rollout-global-dataset: Sample()
        kae_hook()(slime_args(), [Sample(0, 0, prompt="", reward=1.0, **stamped)])
    with pytest.raises(UnstablePromptIds, match="images"):
        kae_hook()(slime_args(), [Sample(0, 0, prompt="p", multimodal_inputs={"image": [1]}, reward=1.0, **stamped)])
    with pytest.raises(UnstablePromptIds, match="has no 'id'"):
        hook = RewardPostProcess(AdvantageEstimator("kae"), id_key="id")
        hook(slime_args(), [Sample(0, 0, prompt="p", reward=1.0, **stamped)])
    with pytest.raises(ValueError, match="advantage-estimator ppo"):
        kae_hook()(slime_args(advantage_estimator="ppo"), [Sample(0, 0, prompt="p", reward=1.0, **stamped)])
    with pytest.raises(ValueError, match="steps"):
        mixed = [Sample(0, 0, prompt="p", reward=1.0, metadata={STEP_KEY: step}) for step in (0, 1)]
        mixed[1].index = 1
        kae_hook()(slime_args(), mixed)
    with pytest.raises(ValueError, match="kaestat_method"):
        RewardPostProcess()(slime_args(), [Sample(0, 0, prompt="p", reward=1.0, **stamped)])


def test_integration_slime_method_from_the_config_file_and_rollout_function_by_path(monkeypatch):
    module = types.ModuleType("their_rollout")
    module.generate_rollout = generate_rollout
    monkeypatch.setitem(__import__("sys").modules, "their_rollout", module)
    hook = RewardPostProcess()
    args = slime_args(kaestat_method="kae:bandwidth=5", kaestat_rollout_function_path="their_rollout.generate_rollout")
    manager = RolloutManager(args, hook, hook.with_step(), RolloutDataSource)
    reference = RolloutManager(args, kae_hook(), None, RolloutDataSource)
    reference.rollout = reference.post_process.with_step(generate_rollout)
    for step in range(3):
        assert manager.generate(step) == reference.generate(step)
    assert manager.metrics["rollout/x"] == 1.0
    assert manager.metrics["baseline/known_prompts"] == pytest.approx(0.5)  # 9 prompts, 6 a step: 3 of step 1 came back


def test_integration_slime_data_source_class_is_slimes_with_the_state_added(monkeypatch):
    module = types.ModuleType("slime.rollout.data_source")
    module.RolloutDataSourceWithBuffer = RolloutDataSource
    for name in ("slime", "slime.rollout"):
        monkeypatch.setitem(__import__("sys").modules, name, types.ModuleType(name))
    monkeypatch.setitem(__import__("sys").modules, "slime.rollout.data_source", module)
    assert issubclass(kaestat_slime.DataSource, RolloutDataSource)
    with pytest.raises(AttributeError):
        kaestat_slime.Nothing  # noqa: B018


def test_integration_slime_evaluation_is_left_alone():
    hook = kae_hook()
    before = {"data": 1}
    stamped = hook.with_step(lambda args, rollout_id, data_source, evaluation: before)
    assert stamped(None, 0, None, evaluation=True) is before == copy.copy(before)


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


@pytest.fixture
def drawing(tmp_path):
    def make(policy="neyman", rollout=generate_rollout, method="kae", **changes):
        hook = RewardPostProcess(AdvantageEstimator(method), prompt_sampler=policy)
        args = slime_args(save=str(tmp_path), load=str(tmp_path), rollout_seed=3, **changes)
        return RolloutManager(args, hook, hook.with_step(rollout), hook.data_source(ListedDataSource))

    return make


@pytest.mark.parametrize(("size", "batch"), [(4, 6), (1, 12)])
def test_integration_slime_prompts_are_drawn_and_their_advantages_corrected(drawing, size, batch):
    rollouts = []

    def kept(args, rollout_id, data_source, evaluation=False):
        rollouts.append(generate_rollout(args, rollout_id, data_source))
        return rollouts[-1]

    manager = drawing(rollout=kept, n_samples_per_prompt=size, rollout_batch_size=batch)
    plain, corrections = AdvantageEstimator("kae"), []
    for step in range(8):
        advantages = manager.generate(step)
        draw = manager.post_process.session(manager.args).drawn.sampler.last_draw
        groups = rollouts[-1].samples
        samples = [sample for group in groups for sample in group]
        assert draw.step == step and [len(group) for group in groups] == [size] * batch
        assert [sample.index for sample in samples] == list(range(step * size * batch, (step + 1) * size * batch))
        assert [sample.prompt for sample in samples] == [manager.args.prompts[s.metadata["row"]] for s in samples]
        ids = [hash_prompt(sample.prompt) for sample in samples]
        assert ids == draw.rows()
        expected = plain.step(ids, [sample.reward for sample in samples], step) * draw.correction_of(ids)
        np.testing.assert_allclose(advantages, expected, rtol=1e-12)
        corrections += draw.correction.tolist()
    assert min(corrections) < 1 < max(corrections)
    assert manager.metrics["sampling/effective_completions"] <= size * batch


def test_integration_slime_parameters_of_the_sampler_come_from_the_config_file(drawing):
    params = {"floor": 0.3, "correction": "none", "most": 2}
    manager = drawing(n_samples_per_prompt=1, rollout_batch_size=12, kaestat_sampler_params=params)
    sampler = manager.post_process.session(manager.args).drawn.sampler
    assert (sampler.floor, sampler.correction, sampler.most) == (0.3, "none", 2)
    drawing(kaestat_sampler_params={"correction": "none"}, dynamic_sampling_filter_path="some.filter")
    with pytest.raises(ValueError, match=r"kaestat_sampler_params\.budget: unknown parameter; choose from floor"):
        drawing(kaestat_sampler_params={"budget": 2})
    with pytest.raises(ValueError, match="floor must lie"):
        drawing(kaestat_sampler_params={"floor": 2})
    with pytest.raises(ValueError, match="no prompts are drawn without prompt_sampler"):
        drawing(None, kaestat_sampler_params={"floor": 0.2})
    with pytest.raises(ValueError, match="floor: a PromptSampler object has its parameters already"):
        drawing(sampler, n_samples_per_prompt=1, rollout_batch_size=12, kaestat_sampler_params={"floor": 0.2})


def test_integration_slime_group_out_of_the_buffer_keeps_the_correction_that_it_was_drawn_with(drawing):
    manager = drawing()
    for step in range(4):
        manager.generate(step)
    manager.post_process._rollout_id = 4
    before = manager.data_source.get_samples(2)
    manager.data_source.add_samples(before)
    after = manager.data_source.get_samples(6)
    assert after[:2] == before
    fresh = manager.post_process.session(manager.args).drawn.sampler.last_draw
    assert fresh.n_completions == 16
    assert [hash_prompt(group[0].prompt) for group in after[2:]] == fresh.prompt_ids


def test_integration_slime_dropped_groups_enter_the_history(drawing, manager):
    def filtered(args, rollout_id, data_source, evaluation=False):
        output = generate_rollout(args, rollout_id, data_source)
        everything = list(output.samples)
        output.samples = [group for group in everything if len({sample.reward for sample in group}) > 1]
        rollouts.append((everything, output.samples))
        if args.tell:
            hook.observe_all(args, everything, data_source)
        return output

    for told in (True, False):
        rollouts, hook = [], kae_hook()
        run = manager(hook, dynamic_sampling_filter_path="some.filter", tell=told)
        run.rollout = hook.with_step(filtered)
        plain = AdvantageEstimator("kae", bandwidth=5.0)
        for step in range(5):
            if told:
                advantages = run.generate(step)
            else:
                with pytest.warns(UserWarning, match="observe_all"):
                    advantages = run.generate(step)
            everything, kept = rollouts[-1]
            columns = [
                ([sample.prompt for group in groups for sample in group], [s.reward for group in groups for s in group])
                for groups in (kept, [group for group in everything if group not in kept])
            ]
            np.testing.assert_allclose(advantages, plain.step(*columns[0], step), rtol=1e-12)
            if told and columns[1][0]:
                plain.observe(*columns[1], step)
        assert any(len(everything) > len(kept) for everything, kept in rollouts)


def test_integration_slime_dropped_groups_have_their_lengths_as_weights():
    hook = RewardPostProcess(AdvantageEstimator("kae", bandwidth=5.0), weights="length")
    plain = AdvantageEstimator("kae", bandwidth=5.0)
    args = slime_args(dynamic_sampling_filter_path="some.filter")
    for step in range(3):
        every = [
            Sample(k // 2, k, prompt=f"p{k // 2}", response_length=2 + 3 * k + step, reward=float(k in (1, 2, 3)))
            for k in range(6)
        ]
        for sample in every:
            sample.metadata = {STEP_KEY: step}
        hook.observe_all(args, [every[:2], every[2:4], every[4:]], None)
        _, found = hook(args, every[:2])
        columns = [([s.prompt for s in part], [s.reward for s in part], step) for part in (every[:2], every[2:])]
        lengths = [sample.response_length for sample in every]
        np.testing.assert_allclose(found, plain.step(*columns[0], weights=lengths[:2]), rtol=1e-12)
        plain.observe(*columns[1], weights=lengths[2:])
    ids = [hash_prompt(sample.prompt) for sample in every[::2]]
    found = hook.session(args).estimator.history.visits(ids, 3)
    expected = plain.history.visits(["p0", "p1", "p2"], 3)
    assert found.weight.tolist() == expected.weight.tolist() and found.weight.all()


def test_integration_slime_sampler_that_cannot_be_right_is_refused(drawing, manager):
    with pytest.raises(ValueError, match="dynamic-sampling-filter-path"):
        drawing(dynamic_sampling_filter_path="some.filter")
    with pytest.raises(ValueError, match="unknown 'best'"):
        drawing("best")
    run = drawing()
    with pytest.raises(ValueError, match="wrap yours with_step"):
        run.data_source.get_samples(6)
    with pytest.raises(ValueError, match="data-source-path"):
        run.post_process(run.args, [Sample(0, 0, prompt="p", reward=1.0, metadata={STEP_KEY: 0})])
    with pytest.raises(ValueError, match="no prompts to draw"):
        args = slime_args(prompts=None, kaestat_prompt_sampler="neyman")
        kae_hook().data_source(RolloutDataSource)(args)


@pytest.mark.parametrize("method", ["opo", "kae", "rloo"])
def test_integration_slime_lengths_are_the_tokens_of_all_segments_in_the_loss(method):
    lengths = [2, 9, 4, 30, 7, 1]
    rewards = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    samples = [
        Sample(0, k, prompt="p", response_length=length, reward=reward, metadata={STEP_KEY: 0})
        for k, (length, reward) in enumerate(zip(lengths, rewards, strict=True))
    ]
    samples[1].loss_mask = [1, 0, 0, 1, 1, 0, 0, 0, 0]  # a tool's answer is out of the loss
    samples[4].remove_sample = True
    segment = Sample(0, 3, prompt="p", response_length=5, reward=0.0, metadata={STEP_KEY: 0})
    _, found = RewardPostProcess(AdvantageEstimator(method), weights="length")(slime_args(), [*samples, segment])
    mask = [True, True, True, True, False, True]
    expected = AdvantageEstimator(method).step(["p"] * 6, rewards, 0, mask=mask, weights=[2, 3, 4, 35, 7, 1])
    np.testing.assert_allclose(found, [*expected, expected[3]], rtol=1e-12)


def test_integration_slime_weights_come_from_the_config_file_too():
    samples = [Sample(0, k, prompt="p", response_length=1 + 2 * k, reward=float(k)) for k in range(2)]
    args = slime_args(kaestat_method="opo", kaestat_weights="length")
    np.testing.assert_allclose(RewardPostProcess()(args, samples)[1], [-0.75, 0.25])
    for weights, message in (
        ("score_norm", "kaestat_weights: unknown"),
        ("none", "kaestat_weights=none: method 'opo'"),
    ):
        with pytest.raises(ValueError, match=message):
            RewardPostProcess()(slime_args(kaestat_method="opo", kaestat_weights=weights), samples)
    with pytest.raises(ValueError, match="weights=length: method 'spo'"):
        RewardPostProcess(AdvantageEstimator("spo"), weights="length")


def test_integration_slime_plain_list_of_a_rollout_function_gets_the_metrics_of_the_step_before(monkeypatch):
    for name, module in base_types().items():
        monkeypatch.setitem(sys.modules, name, module)
    hook, args = kae_hook(), slime_args()

    def step(number, rewards):
        samples = [[Sample(number, k, prompt="a", reward=reward) for k, reward in enumerate(rewards)]]
        output = hook.with_step(lambda *_, **options: samples)(args, number, None)
        hook(args, samples[0])
        return output, samples

    step(0, [1.0, 0.0])
    output, samples = step(1, [1.0])
    assert isinstance(output, RolloutFnTrainOutput) and output.samples is samples
    assert output.metrics["baseline/nonzero_advantages"] == 1.0
