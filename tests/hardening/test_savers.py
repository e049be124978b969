"""Saving on a full disk."""

import multiprocessing
import os
import resource
import signal
from pathlib import Path

import pytest

from kaestat import AdvantageEstimator


def estimator_at(step: int) -> AdvantageEstimator:
    """An estimator whose state is told by its last step alone."""
    estimator = AdvantageEstimator("kae", bandwidth=10)
    for past in range(step + 1):
        estimator.step([f"prompt {k}" for k in range(200)], [float((past + k) % 2) for k in range(200)], past)
    return estimator


def in_a_process(work, *arguments) -> int:
    """Exit code of ``work`` in a process of its own, whose limits end with it."""
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def save_with_no_room(path: Path, room: int) -> None:
    """The kernel refuses every byte beyond ``room``, as a full disk does in the middle of a file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    try:
        estimator_at(3).save(path)
    except OSError as error:
        os._exit(7 if error.errno is not None else 1)
    os._exit(0)


@pytest.mark.parametrize("room", [0, 100, 5000])
def test_no_room_in_the_middle_of_a_save_leaves_the_old_state_and_nothing_else(tmp_path, room):
    path = tmp_path / "state"
    estimator_at(1).save(path)
    old = path.read_bytes()
    assert len(old) > 5000
    assert in_a_process(save_with_no_room, path, room) == 7
    assert path.read_bytes() == old and os.listdir(tmp_path) == ["state"]
    assert AdvantageEstimator.load(path).last_step == 1
