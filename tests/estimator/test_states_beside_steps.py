"""A state that one thread asks for beside the steps of another one is that after a whole step."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest

from kaestat import SeveralRewards
from tests.helpers.estimators import OF_EVERY_STATE

STEPS, SNAPSHOTS = 60, 150

pytestmark = pytest.mark.usefixtures("one_sender")


def take_step(held, step: int) -> None:
    """24 prompts, 2 of them new."""
    rng = np.random.default_rng(step)
    ids = np.repeat(np.arange(2 * step, 2 * step + 24), 2).tolist()
    columns = (2,) if isinstance(held, SeveralRewards) else ()
    held.step(ids, rng.integers(0, 2, (len(ids), *columns)).astype(float), step)


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads take turns every 10 microseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("name", OF_EVERY_STATE)
def test_every_snapshot_is_a_state_after_a_whole_step(name, quick_switches):
    serial, held = OF_EVERY_STATE[name](), OF_EVERY_STATE[name]()
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


@pytest.mark.parametrize("ask", ["state_dict", "save", "step"])
@pytest.mark.parametrize("name", OF_EVERY_STATE)
def test_states_and_steps_wait_for_the_lock(name, ask, tmp_path):
    held = OF_EVERY_STATE[name]()
    calls = {"save": lambda: held.save(tmp_path / "state"), "step": lambda: take_step(held, 0)}
    with ThreadPoolExecutor(1) as pool:
        with held.lock:
            asking = pool.submit(calls.get(ask, held.state_dict))
            assert not wait([asking], timeout=0.05).done
        asking.result(60)
