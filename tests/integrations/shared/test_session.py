"""`TrainerSession`: what every adapter stands on, through the conformance kit and by hand."""

import datetime
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest

from kaestat import AdvantageEstimator, AsynchronousEstimator
from kaestat.baselines.registry import METHODS
from kaestat.core.storage import load_state, save_state, unpack_arrays
from kaestat.estimator.several_rewards import SeveralRewards
from kaestat.integrations.shared import conformance
from kaestat.integrations.shared.prompt_ids import UnstablePromptIds, hash_prompt
from kaestat.integrations.shared.session import LostState, TrainerSession
from kaestat.integrations.shared.tracked_sampler import TrackedSampler

IDS = [f"q{k}" for k in range(10)]


def kae(kind=AdvantageEstimator):
    return kind("kae", bandwidth=5.0)


class Wrapped:
    """A session in the kit's words."""

    def __init__(self, estimator):
        self.session = TrainerSession(estimator)

    def columns(self, rows):
        return {"prompts": rows.prompts, "groups": rows.uids, "mask": ~rows.padding}

    def advantages(self, rows):
        return self.session.advantages(rows.rewards, rows.step, **self.columns(rows))

    def state(self):
        return self.session.state_dict()

    def restore(self, state):
        self.session.load_state_dict(state)


class ById(Wrapped):
    """The same with the data set's ids."""

    def columns(self, rows):
        return super().columns(rows) | {"ids": rows.ids}


@pytest.mark.parametrize("adapter", [Wrapped, ById])
@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_integration_session_conforms(check, adapter):
    check(adapter)


def step_of(session, step, **given):
    return session.advantages([1.0, 0.0, 1.0, 1.0], step, prompts=["p", "p", "q", "q"], **given)


def drawing(method="kae", ids=IDS):
    session = TrainerSession(AdvantageEstimator(method))
    session.drawn = TrackedSampler(session.sampler("neyman", ids, budget=8, group_size=2, seed=1), ids)
    return session


def go(run, steps):
    draws = []
    for step in steps:
        rows = run.drawn.draw(step).rows()
        run.advantages(np.random.default_rng(step).integers(0, 2, len(rows)), step, prompts=rows, ids=rows)
        draws.append(rows)
    return draws


def test_advantages_have_the_correction_of_their_draw_and_the_sampler_sees_all_rewards():
    session, plain = drawing(ids=[*IDS, IDS[0]]), AdvantageEstimator("kae")  # a prompt stands in two rows
    assert session.drawn.row == {name: row for row, name in enumerate(IDS)}
    sampler = session.sampler("neyman", [*IDS, IDS[0]], budget=8, group_size=2, seed=1)
    sampler.predictor = plain
    for step in range(6):
        draw, ids = sampler.draw(step), session.drawn.draw(step).rows()
        assert ids == draw.rows()
        rewards = np.random.default_rng(step).integers(0, 2, len(ids)).astype(float)
        expected = plain.step(ids, rewards, step) * draw.correction_of(ids)
        sampler.observe(ids, rewards, step)
        np.testing.assert_allclose(session.advantages(rewards, step, prompts=ids, ids=ids), expected, atol=1e-12)


def test_prompts_that_were_not_drawn_for_the_step_are_refused_and_nothing_is_recorded():
    session = drawing()
    drawn = session.drawn.draw(0).rows()
    for ids, step, message in (
        (["z"] * 4, 0, "not those that were drawn"),
        ([*drawn, drawn[0]], 0, "not those that were drawn"),
        (drawn, 1, "step 1 are not those"),
        (drawn, None, "draw belongs to a training step"),
    ):
        with pytest.raises(ValueError, match=message):
            session.advantages(np.ones(len(ids)), step, prompts=ids, ids=ids)
    assert session.estimator.history is None
    assert session.advantages(np.ones(3), 0, prompts=drawn[:3], ids=drawn[:3]).shape == (3,)  # one was masked


def test_corrections_that_travel_with_the_rows_are_taken_and_change_no_record():
    session, plain = drawing(), AdvantageEstimator("kae")
    ids, rewards, mask = ["q1", "q1", "q2", "q2"], np.array([1.0, 0.0, 1.0, 1.0]), np.array([True, True, True, False])
    factor = np.array([2.0, 2.0, 0.5, 0.5])
    found = session.advantages(rewards, 0, prompts=ids, ids=ids, correction=factor, mask=mask)
    assert found.tolist() == (plain.step(ids, rewards, 0, mask=mask) * factor).tolist()
    assert session.estimator.record.advantages.tolist() == plain.record.advantages.tolist()


@pytest.mark.filterwarnings("ignore:.*a single group")
@pytest.mark.parametrize("make", [AdvantageEstimator, lambda name: SeveralRewards.of(name, ["r"])])
@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.needs is None])
def test_groups_of_one_are_refused_by_methods_that_need_more(name, make):
    session = TrainerSession(make(name))
    if not METHODS[name].default.alone or name == "pooled":  # a prompt may have several groups
        session.check_group_size("rollout.n", 1)
        return
    with pytest.raises(ValueError, match=f"rollout.n=1: {name}: no group .* 'kae_eb'"):
        session.check_group_size("rollout.n", 1)
    rewards = np.ones(2) if make is AdvantageEstimator else np.ones((2, 1))
    with pytest.raises(ValueError, match=f"completions of a prompt=1: {name}"):
        session.advantages(rewards, 0, prompts=["a", "a"], groups=["g", "h"])
    assert session.estimator.last_step == -1
    session.advantages(rewards, 0, prompts=["a", "a"])
    with pytest.warns(UserWarning, match="no group has more"):
        session.advantages(rewards, 1, prompts=["a", "b"])  # of later steps it may be chance


@pytest.mark.parametrize("kind", [AdvantageEstimator, AsynchronousEstimator])
def test_dropped_rows_of_a_trained_prompt_count_in_any_order_alone(kind):
    session, late = TrainerSession(kae(kind)), kind is AsynchronousEstimator
    session.advantages([1.0, 0.0], 0, prompts=["a", "a"], version=[0, 0] if late else None)
    session.observe([1.0, 1.0, 0.0, 0.0], 0, prompts=["a", "a", "b", "b"], version=[0] * 4 if late else None)
    session.observe([], 0, prompts=[])
    visits = session.estimator.history.visits([hash_prompt("a"), hash_prompt("b")], 1)
    assert visits.count.sum(-1).tolist() == [4 if late else 2, 2]


def test_weights_are_one_choice_for_the_run():
    weighted, plain = TrainerSession(AdvantageEstimator("opo"), weights="length"), AdvantageEstimator("opo")
    found = step_of(weighted, 0, weights=[3.0, 1.0, 2.0, 2.0])
    assert found.tolist() == plain.step(list("ppqq"), [1.0, 0.0, 1.0, 1.0], 0, weights=[3.0, 1.0, 2.0, 2.0]).tolist()
    with pytest.raises(ValueError, match="the trainer gave no weights"):
        step_of(weighted, 1)
    with pytest.raises(ValueError, match=r"my\.option=none: method 'opo'"):
        TrainerSession(AdvantageEstimator("opo"), option="my.option")
    with pytest.raises(ValueError, match="make it with weights"):
        step_of(TrainerSession(kae()), 0, weights=[1.0] * 4)


@pytest.mark.parametrize(("method", "stateful"), [("kae", True), ("ebpo", True), ("spo", True), ("rloo", False)])
def test_a_method_with_a_history_or_a_carry_needs_the_step(method, stateful):
    session = TrainerSession(AdvantageEstimator(method))
    assert session.stateful == stateful
    if stateful:
        for call in (session.advantages, session.observe):
            with pytest.raises(ValueError, match="training step"):
                call([1.0], None, prompts=["p"])
    else:
        np.testing.assert_array_equal(step_of(session, None), [1.0, -1.0, 0.0, 0.0])
        session.observe([1.0, 1.0], None, prompts=["a", "a"])
        assert session.estimator.history is None


def test_streams_do_not_hang_on_the_groups_random_names():
    session, plain = TrainerSession(AdvantageEstimator("kae_stream")), AdvantageEstimator("kae_stream")
    rng = np.random.default_rng(0)
    for step in range(3):
        rewards, names = rng.random(6), [f"{name:x}" for name in rng.integers(1 << 60, size=3)]
        found = session.advantages(rewards, step, prompts=["p"] * 6, groups=np.repeat(names, 2).tolist())
        np.testing.assert_array_equal(found, plain.step(["p"] * 6, rewards, step, stream_ids=[0, 0, 1, 1, 2, 2]))


def test_rows_without_an_id_are_refused():
    for call in (TrainerSession(kae()).advantages, TrainerSession(kae()).observe):
        with pytest.raises(UnstablePromptIds, match="row 1"):
            call([1.0, 0.0], 0, prompts=["p", ""])
        with pytest.raises(ValueError, match="prompts has 1 entries for 2 rewards"):
            call([1.0, 0.0], 0, prompts=["p"])
        for key in (["x"], {"split": "train"}, datetime.date(2026, 1, 1)):
            with pytest.raises(TypeError, match="cannot be saved"):
                call([1.0, 0.0], 0, prompts=["p", "p"], ids=[key, key])


def test_versions_are_those_of_the_estimator():
    session, plain = TrainerSession(kae(AsynchronousEstimator)), kae(AsynchronousEstimator)
    for step, prompts, rewards, version in (
        (3, "ab", [1.0, 0.0], [2, 3]),
        (5, "ba", [1.0, 1.0], [3, 5]),
        (4, "aa", [0.0, 1.0], [1, 4]),
    ):
        found = session.advantages(rewards, step, prompts=list(prompts), ids=list(prompts), version=version)
        np.testing.assert_array_equal(found, plain.step(list(prompts), rewards, step, version=version))
    session.observe([1.0], 5, prompts=["b"], ids=["b"], version=[4])
    assert session.estimator.history.visits(["a", "b"], 6).count.sum() == 7
    with pytest.raises(ValueError, match="AsynchronousEstimator"):
        TrainerSession(kae()).advantages([1.0], 0, prompts=["a"], version=[0])


def test_dropped_groups_leave_the_metrics_and_are_in_the_state():
    prompts, rewards = ["p", "p", "q", "q"], [1.0, 1.0, 0.0, 1.0]
    whole, filtered, resumed = TrainerSession(kae()), TrainerSession(kae()), TrainerSession(kae())
    whole.advantages(rewards, 0, prompts=prompts)
    filtered.advantages(rewards[2:], 0, prompts=prompts[2:])
    metrics = dict(filtered.metrics)
    filtered.observe(rewards[:2], 0, prompts=prompts[:2])
    assert filtered.metrics == metrics
    resumed.load_state_dict(filtered.state_dict())
    later = [each.advantages([0.0, 1.0, 1.0, 0.0], 1, prompts=prompts).tolist() for each in (whole, resumed)]
    assert later[0] == later[1]


@pytest.mark.parametrize("method", ["rloo", "kae"])
def test_a_run_goes_on_from_an_earlier_state_and_from_the_last_one(method, tmp_path):
    whole, ahead, resumed = (drawing(method) for _ in range(3))
    files, expected = (tmp_path / "history", tmp_path / "sampler"), go(whole, range(8))
    go(ahead, range(5))
    state = ahead.state_dict()
    go(ahead, [5])
    resumed.load_state_dict(state)
    assert go(resumed, range(5, 8)) == expected[5:]
    ahead.save(*files, state=state)
    resumed.load(*files)
    assert go(resumed, range(5, 8)) == expected[5:]
    assert resumed.metrics["sampling/prompts"] == len(set(expected[-1]))
    ahead.save(*files)
    resumed.load(*files)
    assert go(resumed, range(6, 8)) == expected[6:]


def test_lost_states_are_refused_or_begin_with_a_warning(tmp_path):
    session, files = drawing(), (tmp_path / "history", tmp_path / "sampler")
    with pytest.raises(LostState, match=r"history: .*the history of 'kae'.*or say so"):
        session.load(*files, remedy="say so")
    with pytest.warns(UserWarning, match="begins here") as said:
        session.load(*files, anew=True)
    assert "the history of 'kae' begins" in str(said[0].message) and "prompt sampler begins" in str(said[1].message)
    session.save(*files)
    files[1].unlink()
    with pytest.raises(LostState, match="without a prompt sampler"):
        session.load(*files)
    with pytest.raises(LostState, match="without a prompt sampler"):
        session.load_state_dict(TrainerSession(kae()).state_dict())
    TrainerSession(AdvantageEstimator("rloo")).load(tmp_path / "nothing", files[1])  # needs neither
    assert issubclass(LostState, FileNotFoundError) and issubclass(LostState, ValueError)
    save_state(files[1], {"sampler": {}})
    with pytest.raises(ValueError, match="no state of AdvantageEstimator"):
        TrainerSession(kae()).load(files[1])


@pytest.mark.parametrize("what", ["observe", "draw"])
def test_a_session_is_saved_before_or_after_what_another_thread_does(what, monkeypatch, tmp_path):
    run = drawing()
    go(run, range(2))
    ids = run.drawn.draw(2).rows()
    amid, go_on = threading.Event(), threading.Event()
    inner = getattr(run.drawn.sampler, what)

    def slow(*given, **named):
        amid.set()
        assert go_on.wait(60)
        return inner(*given, **named)

    monkeypatch.setattr(run.drawn.sampler, what, slow)
    with ThreadPoolExecutor(2) as pool:
        if what == "draw":
            running = pool.submit(run.drawn.draw, 3)
        else:
            running = pool.submit(run.advantages, np.ones(8), 2, prompts=ids, ids=ids)
        assert amid.wait(60)
        saving = pool.submit(run.save, tmp_path / "history", tmp_path / "sampler")
        try:
            assert not wait([saving], timeout=0.2).done
        finally:
            go_on.set()
        running.result(60), saving.result(60)
    state = run.state_dict()
    np.testing.assert_equal(load_state(tmp_path / "history")["state"], unpack_arrays(state["history"]))
    np.testing.assert_equal(load_state(tmp_path / "sampler")["sampler"], unpack_arrays(state["sampler"]))
