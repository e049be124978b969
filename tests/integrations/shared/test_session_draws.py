"""Sessions that draw prompts: history and sampler as of one step, and of one moment."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.core.storage import load_state, unpack_arrays
from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.shared.tracked_sampler import TrackedSampler


def files(folder):
    return folder / "history", folder / "sampler"


IDS = [f"q{k}" for k in range(10)]


def watched(states_kept=2, method="rloo"):
    session = TrainerSession(AdvantageEstimator(method), states_kept=states_kept)
    sampler = session.sampler("neyman", IDS, budget=8, group_size=2, seed=1)
    session.drawn = TrackedSampler(sampler, IDS)
    return session


def go(run, steps):
    draws = []
    for step in steps:
        rows = run.drawn.draw(step).rows()
        rewards = np.random.default_rng(step).integers(0, 2, len(rows))
        run.advantages(rewards, step, prompts=rows, ids=rows)
        draws.append(rows)
    return draws


def test_integration_sampler_saved_as_of_an_earlier_step_goes_on_from_there(tmp_path):
    whole, ahead, resumed = watched(), watched(), watched()
    expected = go(whole, range(8))
    go(ahead, range(6))
    ahead.save(*files(tmp_path), 4)
    resumed.load(*files(tmp_path))
    assert go(resumed, range(5, 8)) == expected[5:]
    assert resumed.metrics["sampling/prompts"] == len(set(expected[-1]))
    with pytest.raises(ValueError, match="states_kept"):
        ahead.save(*files(tmp_path), 3)
    ahead.save(*files(tmp_path))
    resumed = watched()
    resumed.load(*files(tmp_path))
    assert go(resumed, range(6, 8)) == expected[6:]


def test_integration_sampler_that_was_loaded_is_held_as_of_before_the_next_step(tmp_path):
    whole, first, resumed = (watched(method="kae") for _ in range(3))
    expected = go(whole, range(8))
    go(first, range(5))
    first.save(*files(tmp_path))
    resumed.load(*files(tmp_path))
    go(resumed, [5])
    resumed.save(*files(tmp_path), 4)
    resumed.load(*files(tmp_path))
    assert go(resumed, range(5, 8)) == expected[5:]


@pytest.mark.parametrize("what", ["observe", "draw"])
def test_integration_session_is_saved_before_or_after_what_another_thread_does(what, monkeypatch, tmp_path):
    run = watched(method="kae")
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
        saving = pool.submit(run.save, *files(tmp_path))
        done, _ = wait([saving], timeout=0.2)
        go_on.set()
        assert not done
        running.result(60), saving.result(60)
    history, sampler = (load_state(path) for path in files(tmp_path))
    state = run.state_dict()
    np.testing.assert_equal(history["state"], unpack_arrays(state["history"]))
    np.testing.assert_equal(sampler["sampler"], unpack_arrays(state["sampler"]))


def test_integration_sampler_that_is_pickled_goes_on():
    run = watched(states_kept=0)
    expected = go(watched(), range(4))
    go(run, range(2))
    assert go(pickle.loads(pickle.dumps(run)), range(2, 4)) == expected[2:]
