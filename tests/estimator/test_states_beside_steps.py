"""A state that one thread asks for beside the steps of another one is that after a whole step."""

import copy
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import numpy as np
import pytest

from kaestat import AdvantageEstimator, AsynchronousEstimator
from kaestat.core.storage import load_state
from kaestat.estimator.several_rewards import SeveralRewards
from kaestat.history.history import RewardHistory

STEPS, SNAPSHOTS = 60, 150
MAKERS = {
    "kae": partial(AdvantageEstimator, "kae", bandwidth=10),
    "kae, any order": partial(AsynchronousEstimator, "kae", bandwidth=10),
    "kae, deltas kept": partial(AsynchronousEstimator, "kae", bandwidth=10, keep_deltas=True),
    "kae_eb": partial(AdvantageEstimator, "kae_eb"),  # has a carry
    "bayes_filter": partial(AdvantageEstimator, "bayes_filter"),  # has numbers of each prompt
    "several rewards": partial(SeveralRewards.of, "kae", ["right", "format"], bandwidth=10),
}


def take_step(held, step: int) -> None:
    """24 prompts, 2 of them new."""
    rng = np.random.default_rng(step)
    ids = np.repeat(np.arange(2 * step, 2 * step + 24), 2).tolist()
    columns = (2,) if isinstance(held, SeveralRewards) else ()
    held.step(ids, rng.integers(0, 2, (len(ids), *columns)).astype(float), step)


@pytest.fixture(autouse=True)
def one_sender(monkeypatch):
    """Estimators number their deltas under one name, so that their states can be compared."""
    monkeypatch.setattr("kaestat.asynchronous.estimator.secrets.token_hex", lambda size: "sender")


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads take turns every 10 microseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("name", MAKERS)
def test_every_snapshot_is_a_state_after_a_whole_step(name, quick_switches):
    serial, held = MAKERS[name](), MAKERS[name]()
    expected = [serial.state_dict()]
    for step in range(STEPS):
        take_step(serial, step)
        expected.append(serial.state_dict())
    states = []
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(lambda: [take_step(held, step) for step in range(STEPS)])
        while len(states) < SNAPSHOTS and not training.done():
            states.append(held.state_dict())
        training.result(60)
    assert [state for state in states if state not in expected] == []
    assert held.state_dict() == expected[-1]


@pytest.mark.parametrize("ask", ["state_dict", "save"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_state_waits_for_the_rows_that_another_thread_writes(name, ask, monkeypatch, tmp_path):
    held = MAKERS[name]()
    take_step(held, 0)
    take_step(held, 1)
    amid, go_on, write, path = threading.Event(), threading.Event(), RewardHistory.carry_out, tmp_path / "state"
    whole = copy.deepcopy(held)
    whole.save(tmp_path / "whole")

    def slow(history, given):
        amid.set()
        assert go_on.wait(60)
        write(history, given)

    monkeypatch.setattr(RewardHistory, "carry_out", slow)
    with ThreadPoolExecutor(2) as pool:
        writing = pool.submit(held.state_dict)
        assert amid.wait(60)
        asking = pool.submit(held.state_dict) if ask == "state_dict" else pool.submit(held.save, path)
        done, _ = wait([asking], timeout=0.05)
        go_on.set()
        state = writing.result(60)
        asking.result(60)
    assert not done and state == whole.state_dict()
    if ask == "save":
        np.testing.assert_equal(load_state(path), load_state(tmp_path / "whole"))
