"""NumPy 1.26 has no ``np.astype``: kernels get the array API's namespace even where arrays are known to be NumPy's."""

import array_api_compat.numpy  # reads NumPy's names before they are taken away
import numpy as np
import pytest

from kaestat import AdvantageEstimator, select_bandwidth
from kaestat.core import arrays
from kaestat.datasets import simulated_run
from kaestat.integrations.shared.session import TrainerSession
from kaestat.smoothing.kernels import KERNELS
from tests.helpers.tiers import slow_after

SINCE_NUMPY_2 = ("astype", "concat", "isdtype", "matrix_transpose", "permute_dims", "pow", "unique_values", "vecdot")


@pytest.fixture(autouse=True)
def numpy_1(monkeypatch):
    assert set(SINCE_NUMPY_2) <= set(dir(array_api_compat.numpy))
    for name in SINCE_NUMPY_2:
        monkeypatch.delattr(np, name, raising=False)
    monkeypatch.setattr(arrays, "NUMPY", array_api_compat.numpy)  # what it is where NumPy lacks these names


@pytest.mark.parametrize("kernel", slow_after(1, KERNELS))
@pytest.mark.parametrize("selector", ["loo_cv", "forward_cv"])
def test_selectors_need_nothing_that_came_with_numpy_2(selector, kernel):
    log = simulated_run(n_prompts=6, n_epochs=12, group_size=4).log
    assert select_bandwidth(log, selector, kernel=kernel).bandwidth > 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_metrics_need_nothing_that_came_with_numpy_2(kernel):
    watched = TrainerSession(AdvantageEstimator("kae", kernel=kernel, bandwidth=5))
    for step in range(3):
        watched.advantages([1.0, 0.0, 1.0, 1.0], step, prompts=["a", "a", "b", "b"])
    assert watched.metrics["baseline/effective_history"] > 0
