"""slime: its rollout manager's calls and its data source, written out; its samples are its own where it is there."""

import copy

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.integrations import slime as kaestat_slime
from kaestat.integrations.shared import conformance
from kaestat.integrations.shared.prompt_ids import UnstablePromptIds, hash_prompt
from kaestat.integrations.slime import RewardPostProcess
from kaestat.integrations.slime_samples import STEP_KEY
from tests.fakes.modules import add_module, put_in_place
from tests.fakes.slime_source import (
    ListedDataSource,
    RolloutDataSource,
    RolloutFnTrainOutput,
    RolloutManager,
    Sample,
    base_types,
    generate_rollout,
    slime_args,
)


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
        self.hook, self.files = RewardPostProcess(estimator), {"save": folder, "load": folder}
        self.files |= {"kaestat_id_key": self.id_key}
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


def test_integration_slime_data_sources_own_place_is_saved_and_loaded(manager):
    first, again = (manager(kae_hook()).data_source for _ in range(2))
    first.get_samples(6)
    first.save(0)
    again.load(0)
    assert again.sample_offset == first.sample_offset == 6


def test_integration_slime_without_the_step_a_history_is_refused_and_a_memoryless_method_works():
    samples = [Sample(0, k, prompt="2+2=", reward=float(k)) for k in range(3)]
    with pytest.raises(ValueError, match="step"):
        kae_hook()(slime_args(), samples)
    raw, advantages = RewardPostProcess(AdvantageEstimator("rloo"))(slime_args(), samples)
    assert raw == [0.0, 1.0, 2.0]
    np.testing.assert_allclose(advantages, [-1.5, 0.0, 1.5])


def test_integration_slime_refuses_what_would_train_on_a_wrong_history_or_baseline():
    stamped = {"metadata": {STEP_KEY: 0}}
    with pytest.raises(UnstablePromptIds, match="missing or empty"):  # --disable-rollout-global-dataset: Sample()
        kae_hook()(slime_args(), [Sample(0, 0, prompt="", reward=1.0, **stamped)])
    with pytest.raises(UnstablePromptIds, match="images"):
        kae_hook()(slime_args(), [Sample(0, 0, prompt="p", multimodal_inputs={"image": [1]}, reward=1.0, **stamped)])
    with pytest.raises(UnstablePromptIds, match="has no 'id'"):
        kae_hook()(slime_args(kaestat_id_key="id"), [Sample(0, 0, prompt="p", reward=1.0, **stamped)])
    with pytest.raises(ValueError, match="advantage-estimator ppo"):
        kae_hook()(slime_args(advantage_estimator="ppo"), [Sample(0, 0, prompt="p", reward=1.0, **stamped)])
    with pytest.raises(ValueError, match="steps"):
        mixed = [Sample(0, 0, prompt="p", reward=1.0, metadata={STEP_KEY: step}) for step in (0, 1)]
        mixed[1].index = 1
        kae_hook()(slime_args(), mixed)
    with pytest.raises(ValueError, match="kaestat_weights=none: method 'opo'"):
        RewardPostProcess()(slime_args(kaestat_method="opo"), [Sample(0, 0, prompt="p", reward=1.0, **stamped)])
    with pytest.raises(ValueError, match="kaestat_method"):
        RewardPostProcess()(slime_args(), [Sample(0, 0, prompt="p", reward=1.0, **stamped)])


def test_integration_slime_method_from_the_config_file_and_rollout_function_by_path(monkeypatch):
    made = {}
    add_module(made, "their_rollout", generate_rollout=generate_rollout)
    put_in_place(monkeypatch, made)
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
    made = {}
    add_module(made, "slime.rollout.data_source", RolloutDataSourceWithBuffer=RolloutDataSource)
    put_in_place(monkeypatch, made)
    assert issubclass(kaestat_slime.DataSource, RolloutDataSource)
    with pytest.raises(AttributeError):
        kaestat_slime.Nothing  # noqa: B018


def test_integration_slime_evaluation_is_left_alone():
    hook = kae_hook()
    before = {"data": 1}
    stamped = hook.with_step(lambda args, rollout_id, data_source, evaluation: before)
    assert stamped(None, 0, None, evaluation=True) is before == copy.copy(before)


def test_integration_slime_filter_that_hides_groups_from_the_history_is_warned_of(manager):
    with pytest.warns(UserWarning, match="observe_all"):
        manager(kae_hook(), dynamic_sampling_filter_path="some.filter").generate(0)


def test_integration_slime_plain_list_of_a_rollout_function_gets_the_metrics_of_the_step_before(monkeypatch):
    put_in_place(monkeypatch, base_types())
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
