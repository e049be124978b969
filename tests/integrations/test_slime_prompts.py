"""Prompts that a sampler draws in slime, in place of its data source."""

from __future__ import annotations

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.prompt_ids import hash_prompt
from kaestat.integrations.slime import RewardPostProcess
from kaestat.integrations.slime_samples import STEP_KEY
from tests.fakes.slime_source import (
    ListedDataSource,
    RolloutDataSource,
    RolloutManager,
    Sample,
    generate_rollout,
    slime_args,
)


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
