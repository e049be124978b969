"""A history that has run for long: exact to the last visit, and no larger than its horizon."""

from __future__ import annotations

import numpy as np
import pytest

from kaestat import RewardHistory
from tests.hardening.long_run import long_run


@pytest.mark.parametrize("steps", [300, pytest.param(3000, marks=pytest.mark.slow)])
def test_values_do_not_drift_and_memory_levels_off(steps):
    prompts, bytes_a_visit = steps // 10, 24
    run = long_run(steps=steps, prompts=prompts, batch=16, bandwidth=steps // 15)
    assert run.checked > steps
    assert run.worst < 1e-14
    columns, rows = 1.25 * run.most + 3, 1.125 * prompts + 2  # room is made ahead, by a quarter and an eighth
    assert max(run.sizes) <= bytes_a_visit * columns * rows, "visits beyond the horizon are kept"
    beside = [traced - size for traced, size in zip(run.traced, run.sizes, strict=True)]
    assert beside[-1] < 1.2 * beside[2], "something beside the history's arrays grows with the steps"
    assert run.state <= run.sizes[-1]


def test_a_history_without_horizon_grows_with_its_visits_alone():
    history, bytes_a_visit = RewardHistory(), 10
    for step in range(400):
        history.record(["a", "b"], step=step, count=[2, 2], total=[1.0, 2.0], total_sq=[1.0, 2.0])
    assert history.width <= 1.25 * 400 + 2
    assert history.nbytes <= bytes_a_visit * history.width * 3
    visits = history.visits(["a"], 400)
    np.testing.assert_array_equal(visits.lag[0, -400:], np.arange(400, 0, -1))
