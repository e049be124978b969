"""`TrainerSession`, which the flat adapters and the recipes stand on: ids, steps, copies, states by step, metrics."""

import datetime
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from kaestat import AdvantageEstimator, AsynchronousEstimator
from kaestat.core.storage import load_state, save_state, unpack_arrays
from kaestat.integrations.shared.prompt_ids import UnstablePromptIds
from kaestat.integrations.shared.session import TrainerSession


def kae():
    return AdvantageEstimator("kae", bandwidth=5.0)


def step_of(watched, step, **given):
    return watched.advantages([1.0, 0.0, 1.0, 1.0], step, prompts=["p", "p", "q", "q"], **given)


def test_integration_watched_state_of_a_step_that_is_not_held_is_refused():
    watched, resumed = TrainerSession(kae(), states_kept=3), TrainerSession(kae())
    for step in range(4):
        step_of(watched, step)
    assert watched.state_dict(1) != watched.state_dict(3) == watched.state_dict() == watched.state_dict(9)
    with pytest.raises(ValueError, match="states_kept"):
        watched.state_dict(0)
    resumed.load_state_dict(watched.state_dict(1))
    step_of(resumed, 2)
    with pytest.raises(ValueError, match=r"those after no step are kept.*states_kept"):
        resumed.state_dict(1)


def test_integration_watched_step_that_raised_is_not_among_the_states():
    watched = TrainerSession(kae(), states_kept=2)
    step_of(watched, 0)
    before = watched.state_dict()
    with pytest.raises(ValueError):
        watched.advantages([np.nan], 1, prompts=["p"])
    assert watched.state_dict(1) == watched.state_dict() == before


def test_integration_watched_states_taken_beside_running_steps_are_those_between_them():
    n_steps, prompts = 60, np.arange(4_000)
    drawn = [np.random.default_rng(step).choice(prompts, 500, replace=False).astype(str) for step in range(n_steps)]
    watched, plain, expected = TrainerSession(kae()), kae(), {-1: kae().state_dict()}
    for step, ids in enumerate(drawn):
        plain.step(ids, np.ones(len(ids)), step)
        expected[step] = plain.state_dict()

    def train():
        for step, ids in enumerate(drawn):
            watched.advantages(np.ones(len(ids)), step, prompts=ids, ids=ids)

    interval, states = sys.getswitchinterval(), []
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as pool:
            training = pool.submit(train)
            while not training.done():
                states.append(watched.state_dict()["history"])
            training.result()
    finally:
        sys.setswitchinterval(interval)
    assert len({state["last_step"] for state in states}) >= 3  # or nothing ran beside anything
    torn = [state["last_step"] for state in states if state != expected[state["last_step"]]]
    assert torn == []


def test_integration_watched_held_state_does_not_wait_for_the_step_that_is_running(monkeypatch):
    watched = TrainerSession(kae(), states_kept=2)
    step_of(watched, 0)
    held, amid, go_on = watched.state_dict(0), threading.Event(), threading.Event()
    take_step = watched.estimator.recorded

    def slow(*given, **named):
        amid.set()
        assert go_on.wait(60)
        return take_step(*given, **named)

    monkeypatch.setattr(watched.estimator, "recorded", slow)
    with ThreadPoolExecutor(3) as pool:
        training = pool.submit(step_of, watched, 1)
        assert amid.wait(60)
        at_once, present = pool.submit(watched.state_dict, 0), pool.submit(watched.state_dict)
        try:
            assert at_once.result(60) == held
            assert not present.done()
        finally:
            go_on.set()
        training.result()
        assert present.result(60) == watched.state_dict(1) != held


def test_integration_watched_estimator_is_saved_whole_or_where_it_cannot_be_its_state_alone(tmp_path):
    of_name = TrainerSession(kae())
    of_function = TrainerSession(AdvantageEstimator("kae", bandwidth=5, kernel=lambda u: 2 * (1 - u) * (u < 1)))
    for watched in (of_name, of_function):
        step_of(watched, 0)
        watched.save(tmp_path / "state")
        np.testing.assert_equal(load_state(tmp_path / "state")["state"], unpack_arrays(watched.state_dict()["history"]))
        if watched is of_name:
            assert AdvantageEstimator.load(tmp_path / "state").last_step == 0
        else:
            with pytest.raises(ValueError, match="holds no AdvantageEstimator"):
                AdvantageEstimator.load(tmp_path / "state")


@pytest.mark.parametrize(("method", "stateful"), [("kae", True), ("ebpo", True), ("spo", True), ("rloo", False)])
def test_integration_watched_method_with_a_history_or_a_carry_needs_the_step(method, stateful):
    watched = TrainerSession(AdvantageEstimator(method), states_kept=2)
    assert watched.stateful == stateful
    if stateful:
        with pytest.raises(ValueError, match="training step"):
            step_of(watched, None)
    else:
        np.testing.assert_array_equal(step_of(watched, None), [1.0, -1.0, 0.0, 0.0])
        watched.observe([1.0, 1.0], None, prompts=["a", "a"])
        assert watched.estimator.history is None and not watched._states


def test_integration_watched_streams_do_not_hang_on_the_groups_random_names():
    watched, plain = TrainerSession(AdvantageEstimator("kae_stream")), AdvantageEstimator("kae_stream")
    rng = np.random.default_rng(0)
    for step in range(3):
        rewards = rng.random(6)
        names = [f"{name:x}" for name in rng.integers(1 << 60, size=3)]
        found = watched.advantages(rewards, step, prompts=["p"] * 6, groups=np.repeat(names, 2).tolist())
        np.testing.assert_array_equal(found, plain.step(["p"] * 6, rewards, step, stream_ids=[0, 0, 1, 1, 2, 2]))


def test_integration_watched_missing_or_moving_ids_are_refused():
    with pytest.raises(UnstablePromptIds, match="row 1"):
        TrainerSession(kae()).advantages([1.0, 0.0], 0, prompts=["p", ""])
    with pytest.raises(ValueError, match="prompts has 1 entries for 2 rewards"):
        TrainerSession(kae()).advantages([1.0, 0.0], 0, prompts=["p"])
    with pytest.raises(ValueError, match="states_kept"):
        TrainerSession(kae(), states_kept=-1)


@pytest.mark.parametrize("key", [["x"], {"split": "train"}, datetime.date(2026, 1, 1)])
def test_integration_watched_ids_that_no_checkpoint_can_hold_are_refused_at_once(key):
    with pytest.raises(TypeError, match=r"prompt id .* cannot be saved"):
        TrainerSession(kae()).advantages([1.0, 0.0], 0, prompts=["p", "p"], ids=[key, key])


@pytest.mark.parametrize("kind", [np.int64, torch.tensor])
def test_integration_watched_ids_of_arrays_and_tensors_are_those_of_plain_numbers(kind):
    watched = TrainerSession(kae())
    for step, number in enumerate([int, kind, kind]):
        watched.advantages([1.0, 0.0], step, prompts=["p", "p"], ids=[number(7), number(7)])
    assert watched.metrics["baseline/past_completions"] == 4.0


def test_integration_watched_file_of_something_else_is_refused(tmp_path):
    save_state(tmp_path / "other", {"sampler": {}})
    with pytest.raises(ValueError, match="no state of AdvantageEstimator"):
        TrainerSession(kae()).load(tmp_path / "other")


def test_integration_watched_observed_groups_leave_the_metrics_and_are_in_the_state_that_is_held_of_their_step():
    prompts, rewards = ["p", "p", "q", "q"], [1.0, 1.0, 0.0, 1.0]
    whole, filtered, resumed = TrainerSession(kae()), TrainerSession(kae(), states_kept=2), TrainerSession(kae())
    whole.advantages(rewards, 0, prompts=prompts)
    filtered.advantages(rewards[2:], 0, prompts=prompts[2:])
    metrics = dict(filtered.metrics)
    filtered.observe(rewards[:2], 0, prompts=prompts[:2])
    assert filtered.metrics == metrics
    filtered.advantages([1.0, 1.0], 1, prompts=["p", "p"])
    resumed.load_state_dict(filtered.state_dict(0))
    later = [each.advantages([0.0, 1.0, 1.0, 0.0], 1, prompts=prompts).tolist() for each in (whole, resumed)]
    assert later[0] == later[1]


def test_integration_watched_observed_rows_are_checked_as_those_trained_on():
    watched = TrainerSession(kae())
    with pytest.raises(ValueError, match="training step"):
        watched.observe([1.0], None, prompts=["p"])
    with pytest.raises(UnstablePromptIds, match="missing or empty"):
        watched.observe([1.0], 0, prompts=[""])
    watched.observe([1.0], 0, prompts=["p"])
    with pytest.raises(ValueError, match="already recorded"):
        watched.advantages([1.0], 0, prompts=["p"])


def test_tracked_versions_are_those_of_the_estimator_and_late_completions_are_in_no_earlier_state():
    watched = TrainerSession(AsynchronousEstimator("kae", bandwidth=5), states_kept=3)
    plain = AsynchronousEstimator("kae", bandwidth=5)
    calls = [(3, "ab", [1.0, 0.0], [2, 3]), (5, "ba", [1.0, 1.0], [3, 5]), (4, "aa", [0.0, 1.0], [1, 4])]
    for step, prompts, rewards, version in calls:
        found = watched.advantages(rewards, step, prompts=list(prompts), ids=list(prompts), version=version)
        np.testing.assert_array_equal(found, plain.step(list(prompts), rewards, step, version=version))
    watched.observe([1.0], 5, prompts=["b"], ids=["b"], version=[4])
    assert watched.any_order
    resumed = TrainerSession(AsynchronousEstimator("kae", bandwidth=5))
    resumed.load_state_dict(watched.state_dict(4))
    assert resumed.estimator.history.visits(["a", "b"], 6).count.sum() == 2  # of the call at step 3 alone
    resumed.load_state_dict(watched.state_dict(5))
    assert resumed.estimator.history.visits(["a", "b"], 6).count.sum() == 7
    with pytest.raises(ValueError, match="AsynchronousEstimator"):
        TrainerSession(AdvantageEstimator("kae")).advantages([1.0], 0, prompts=["a"], version=[0])
