"""Every data-driven selector against its slow reference."""

import numpy as np
import pytest

from kaestat.smoothing.kernels import as_kernel
from kaestat.smoothing.selectors import make_selector
from tests.helpers.selector_logs import GRID, LOGS, visits_of
from tests.helpers.selector_references import PATHS

NO_GROUP = np.zeros((1, 1))


def resolve(selector, visits, kernel="triangular", step=100):
    return selector.resolve(visits, NO_GROUP, step=step, kernel=as_kernel(kernel))


@pytest.mark.parametrize("kernel", ["triangular", "exponential", "uniform"])
@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("name", PATHS)
def test_risk_path_is_the_slow_reference(name, log, kernel):
    expected = PATHS[name](LOGS[log], kernel, GRID)
    selection = make_selector(name, grid=GRID).select(visits_of(LOGS[log]), kernel=as_kernel(kernel), n_boot=0)
    np.testing.assert_allclose(selection.path["risk"], expected, rtol=1e-10, atol=1e-13)
    assert selection.path["bandwidth"].tolist() == list(GRID)
    assert selection.bandwidth == max(
        b for b, risk in zip(GRID, expected, strict=True) if risk <= min(expected) + 1e-11
    )


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("log", LOGS)
def test_a_training_step_chooses_as_the_whole_log_of_its_past_does(name, log):
    selector = make_selector(name)
    visits = visits_of(LOGS[log])
    ((bandwidth, share),) = resolve(selector, visits)
    assert share == 1.0
    assert bandwidth == selector.select(visits, kernel=as_kernel("triangular"), n_boot=0).bandwidth


def test_default_grid_runs_from_one_and_a_half_gaps_to_the_span():
    log = [[(4.0, [0.0, 1.0]), (6.0, [1.0, 1.0])], [(0.0, [0.0, 1.0]), (24.0, [1.0, 0.0])]]
    path = make_selector("forward_cv").select(visits_of(log), kernel=as_kernel("triangular"), n_boot=0).path
    grid = path["bandwidth"].to_numpy()
    assert len(grid) == 31
    assert grid[0] == pytest.approx(3.0)  # the shortest gap is 2
    assert grid[-1] == pytest.approx(26.0)  # 24 from first to last, and one gap
    np.testing.assert_allclose(np.diff(np.log(grid)), np.log(26 / 3) / 30)
