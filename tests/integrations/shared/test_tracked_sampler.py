"""`TrackedSampler`, which the adapters that draw prompts stand on: states by step."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.core.storage import load_state, unpack_arrays
from kaestat.integrations.shared.tracked_sampler import TrackedSampler, sampler_of

IDS = [f"q{k}" for k in range(10)]


def watched(states_kept=2):
    sampler = sampler_of("neyman", IDS, budget=8, group_size=2, estimator=AdvantageEstimator("rloo"), seed=1)
    return TrackedSampler(sampler, IDS, states_kept=states_kept)


def go(run, steps):
    draws = []
    for step in steps:
        rows = run.sampler.draw(step).rows()
        run.observe(rows, np.random.default_rng(step).integers(0, 2, len(rows)), step)
        draws.append(rows)
    return draws


def test_integration_sampler_saved_as_of_an_earlier_step_goes_on_from_there(tmp_path):
    whole, ahead, resumed = watched(), watched(), watched()
    expected = go(whole, range(8))
    go(ahead, range(6))
    ahead.save(tmp_path / "state", 4)
    resumed.load(tmp_path / "state")
    assert go(resumed, range(5, 8)) == expected[5:]
    assert resumed.metrics["sampling/prompts"] == len(set(expected[-1]))
    with pytest.raises(ValueError, match="states_kept"):
        ahead.save(tmp_path / "state", 3)
    ahead.save(tmp_path / "newest")
    resumed.load(tmp_path / "newest")
    assert go(resumed, range(6, 8)) == expected[6:]


def test_integration_sampler_that_holds_no_states_saves_the_newest_alone(tmp_path):
    run = watched(states_kept=0)
    go(run, range(2))
    run.save(tmp_path / "state", 1)
    with pytest.raises(ValueError, match="states_kept"):
        run.save(tmp_path / "state", 0)


def test_integration_sampler_that_was_loaded_is_held_as_of_before_the_next_step(tmp_path):
    whole, resumed = watched(), watched()
    expected = go(whole, range(8))
    first = watched()
    go(first, range(5))
    first.save(tmp_path / "state")
    resumed.load(tmp_path / "state")
    go(resumed, [5])
    resumed.save(tmp_path / "again", 4)
    resumed.load(tmp_path / "again")
    assert go(resumed, range(5, 8)) == expected[5:]


@pytest.mark.parametrize(("step", "given"), [("observe", (IDS[:4], np.ones(4), 2)), ("draw", (3,))])
def test_integration_sampler_is_saved_before_or_after_what_another_thread_does(step, given, monkeypatch, tmp_path):
    run = watched()
    go(run, range(2))
    run.draw(2)
    amid, go_on = threading.Event(), threading.Event()
    inner = getattr(run.sampler, step)

    def slow(*given, **named):
        amid.set()
        assert go_on.wait(60)
        return inner(*given, **named)

    monkeypatch.setattr(run.sampler, step, slow)
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(getattr(run, step), *given)
        assert amid.wait(60)
        saving = pool.submit(run.save, tmp_path / "state")
        done, _ = wait([saving], timeout=0.2)
        go_on.set()
        assert not done
        running.result(60), saving.result(60)
    np.testing.assert_equal(load_state(tmp_path / "state")["sampler"], unpack_arrays(run.sampler.state_dict()))


def test_integration_sampler_that_is_pickled_goes_on():
    run = watched(states_kept=0)
    expected = go(watched(), range(4))
    go(run, range(2))
    assert go(pickle.loads(pickle.dumps(run)), range(2, 4)) == expected[2:]
