"""Selectors where the best bandwidth is known."""

import numpy as np
import pytest

from kaestat import Visits
from kaestat.smoothing.kernels import as_kernel
from kaestat.smoothing.selectors import SELECTORS, make_selector
from kaestat.smoothing.selectors.data_driven import DataDriven

LEARNED = [name for name, kind in SELECTORS.items() if issubclass(kind, DataDriven) and name != "auto"]


@pytest.mark.parametrize("reward", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("name", LEARNED)
def test_constant_rewards_leave_all_bandwidths_equal_and_the_largest_wins(name, reward):
    ones = np.ones((5, 30)) * np.array([[1.0], [1.0], [1.0], [2.0], [2.0]])
    lag = np.broadcast_to(np.arange(30, 0, -1.0), ones.shape)
    visits = Visits(lag=lag, count=ones, total=reward * ones, total_sq=reward**2 * ones)
    for level in (0.0, 1 / 3):  # alike over all prompts, or only within
        own = Visits(
            lag=lag,
            count=ones,
            total=visits.total + level * np.arange(5)[:, None] * ones,
            total_sq=ones * (reward + level * np.arange(5)[:, None]) ** 2,
        )
        assert make_selector(name).select(own, kernel=as_kernel("triangular")).bandwidth == pytest.approx(30.0)
