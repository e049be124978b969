"""`kaestat.select_bandwidth` on whole logs."""

import numpy as np
import pytest

from kaestat import RewardLog, select_bandwidth, value_risk
from kaestat.smoothing.selectors import SELECTORS, Fixed, ForwardCv, LooCv
from tests.helpers.selector_logs import GRID, LOGS, random_log, reward_log

LOG = random_log(7, prompts=12, visits=12)


@pytest.mark.parametrize("kernel", ["triangular", "exponential", "epanechnikov"])
@pytest.mark.parametrize("log", ["ragged", "regular", "two completions"])  # value_risk needs two somewhere
def test_leave_one_out_path_is_the_value_risk_of_kae(log, kernel):
    log = reward_log(LOGS[log])
    path = select_bandwidth(log, "loo_cv", kernel, GRID, n_boot=0).path
    risk = value_risk(log, [f"kae:bandwidth={b},kernel={kernel}" for b in GRID], n_boot=0)
    np.testing.assert_allclose(path["risk"], risk["mse"], rtol=1e-12, atol=1e-15)


def test_path_and_standard_errors_are_those_of_the_bootstrap():
    log = reward_log(LOG)
    selection = select_bandwidth(log, ForwardCv(), grid=GRID, n_boot=4000, seed=3)
    assert list(selection.path.columns) == ["bandwidth", "risk", "se", "difference_se"]
    loss = []
    for prompt in range(len(log.prompts)):  # the path of a log of one prompt is that prompt's loss
        frame = log.frame[log.frame["prompt"] == prompt]
        alone = RewardLog(frame["prompt"], frame["step"], frame["reward"])
        if log.frame.groupby(["prompt", "step"]).size()[prompt].iloc[1:].max() > 1:
            loss.append(select_bandwidth(alone, "forward_cv", grid=GRID, n_boot=0).path["risk"])
    loss = np.array(loss)
    best = int(np.argmin(loss.mean(axis=0)))
    root = np.sqrt(len(loss))
    np.testing.assert_allclose(selection.path["risk"], loss.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(selection.path["se"], loss.std(axis=0) / root, rtol=0.06)
    difference = loss - loss[:, [best]]
    np.testing.assert_allclose(selection.path["difference_se"], difference.std(axis=0) / root, rtol=0.06, atol=1e-15)
    assert selection.bandwidth == GRID[best]
    rng = np.random.default_rng(0)
    drawn = [GRID[int(np.argmin(loss[rng.integers(len(loss), size=len(loss))].mean(axis=0)))] for _ in range(4000)]
    assert selection.se == pytest.approx(np.std(drawn), rel=0.1)


@pytest.mark.parametrize("name", list(SELECTORS))
def test_every_selector_serves_a_log(name):
    selection = select_bandwidth(reward_log(LOG), name, n_boot=10)
    assert selection.selector == name
    assert selection.time_axis == "step"
    assert isinstance(selection.bandwidth, float) and 0 < selection.bandwidth < np.inf
    formula = name in ("fixed", "fraction", "rate")
    assert np.isnan(selection.se) == formula and selection.path.empty == formula


def test_bad_input_names_the_argument_and_the_fix():
    log = reward_log(LOG)
    with pytest.raises(TypeError, match=r"log must be a RewardLog \(read_log"):
        select_bandwidth("log.csv")
    for message, selector, options in (
        ("selector: unknown name 'cv'; choose one of", "cv", {}),
        ("kernel: unknown name 'gauss'", "loo_cv", {"kernel": "gauss"}),
        ("grid is empty", "loo_cv", {"grid": []}),
        ("grid: bandwidths must be strictly increasing", LooCv(), {"grid": [3, 2]}),
        ("selector 'fixed' takes no grid", Fixed(3), {"grid": [1, 2]}),
        ("n_boot", "loo_cv", {"n_boot": -1}),
    ):
        with pytest.raises(ValueError, match=message):
            select_bandwidth(log, selector, **options)
    once = RewardLog(["a", "a", "b"], [0, 0, 5], [0, 1, 1])
    with pytest.raises(ValueError, match="'forward_cv': no prompt has two visits"):
        select_bandwidth(once, "forward_cv")
