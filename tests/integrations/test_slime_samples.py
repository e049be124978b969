"""Rewards, lengths and prompts of slime's samples: segments, removed samples, weights; and prompts that are drawn."""

import copy

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.prompt_ids import hash_prompt
from kaestat.integrations.slime import RewardPostProcess, flat
from kaestat.integrations.slime_samples import STEP_KEY
from tests.fakes.slime_source import (
    ListedDataSource,
    RolloutDataSource,
    RolloutFnTrainOutput,
    RolloutManager,
    Sample,
    generate_rollout,
    slime_args,
)


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
    return RolloutFnTrainOutput([list(flat(group)) for group in groups])


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


@pytest.mark.parametrize("method", ["opo", "kae"])
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
    args = slime_args(kaestat_weights="length")
    _, found = RewardPostProcess(AdvantageEstimator(method))(args, [*samples, segment])
    mask = [True, True, True, True, False, True]
    expected = AdvantageEstimator(method).step(["p"] * 6, rewards, 0, mask=mask, weights=[2, 3, 4, 35, 7, 1])
    np.testing.assert_allclose(found, [*expected, expected[3]], rtol=1e-12)


def test_integration_slime_dropped_groups_have_their_lengths_as_weights():
    hook = RewardPostProcess(AdvantageEstimator("kae", bandwidth=5.0))
    plain = AdvantageEstimator("kae", bandwidth=5.0)
    args = slime_args(dynamic_sampling_filter_path="some.filter", kaestat_weights="length")
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
    assert fresh.counts.sum() == 16
    assert [hash_prompt(group[0].prompt) for group in after[2:]] == fresh.prompt_ids


def test_integration_slime_sampler_that_cannot_be_right_is_refused(drawing):
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
        RewardPostProcess(AdvantageEstimator("kae")).data_source(RolloutDataSource)(args)
