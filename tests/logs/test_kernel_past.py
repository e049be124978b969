"""Kernel sums that go on from visit to visit are those over all earlier visits, and give the same risks."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator, RewardLog, make_baseline
from kaestat.baselines.registry import parse_method
from kaestat.logs import replay
from kaestat.logs.kernel_past import NAMES, summed_past
from kaestat.logs.risk import risk_baseline, visit_risk

BANDWIDTHS = [0.8, 1.5, 3.0, 7.3, 40.0, 5000.0]
METHODS = ["kae", "kae_eb", "local_linear"]


def irregular(seed=0, whole=True, gaps=(1, 1, 2, 3, 40, 400)):
    """Prompts that come back after a step or many, with one to five completions."""
    rng = np.random.default_rng(seed)
    prompt, step, reward = [], [], []
    for who in range(12):
        for now in np.cumsum(rng.choice(gaps, size=rng.integers(1, 40))):
            size = int(rng.integers(1, 6))
            prompt += [who] * size
            step += [int(now)] * size
            reward += list(rng.integers(0, 2, size) if whole else rng.normal(3, 1, size))
    return RewardLog(prompt, step, reward)


def directly(units, kernel, bandwidth):
    """The sums at each visit from all earlier ones, in the order of `KernelSums`."""
    found = np.zeros((len(NAMES), len(units.visit_step)))
    for v, (unit, now) in enumerate(zip(units.visit_unit, units.visit_step, strict=True)):
        past = (units.visit_unit == unit) & (units.visit_step < now)
        lag, n = (now - units.visit_step[past]).astype(float), units.counts[past]
        total, total_sq = units.total[past], units.total_sq[past]
        w = kernel.weight(lag / bandwidth, np)
        terms = (w * n, w * total, w * total_sq, w**2 * n, w * n * lag, w * n * lag**2, w * total * lag, w > 0)
        found[:, v] = [term.sum() for term in terms]
    return found


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("kernel", ["triangular", "exponential"])
def test_sums_that_go_on_are_those_over_all_earlier_visits(kernel, whole):
    units = irregular(whole=whole).prompt_units
    baseline = make_baseline("kae", kernel=kernel, bandwidth=1.0)
    summed = summed_past(baseline.at_each(BANDWIDTHS), units)
    for k, bandwidth in enumerate(BANDWIDTHS):
        expected = directly(units, baseline.weighting, bandwidth)
        scale = np.abs(expected).max(axis=1, keepdims=True) + 1e-300
        if kernel == "exponential":  # what is too far to have a weight at a single step stays counted over several
            expected[-1], found = 0, summed[:, k] * (np.arange(len(NAMES)) < len(NAMES) - 1)[:, None]
        else:
            found = summed[:, k]
        assert np.max(np.abs(found - expected) / scale) < 1e-12


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bandwidth", [1.5, 30.0])
@pytest.mark.parametrize("kernel", ["triangular", "exponential"])
def test_risks_are_those_from_all_earlier_visits(method, bandwidth, kernel, monkeypatch):
    # After a long gap the far visits of a local linear fit weigh less than rounding: no arithmetic has its value.
    log, baseline = irregular(gaps=(1, 1, 2, 3)), make_baseline(method, bandwidth=bandwidth, kernel=kernel)
    found = visit_risk(log, baseline, absolute=False)
    monkeypatch.setattr(replay, "summed_past", lambda *_: None)
    np.testing.assert_allclose(found, visit_risk(log, baseline, absolute=False), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "method", ["kae:normalization=algorithm1,bandwidth=5", "local_polynomial", "kae", "kae_stream"]
)
def test_methods_that_read_more_of_the_past_are_given_all_of_it(method):
    name, options = parse_method(method)
    assert summed_past(make_baseline(name, **options), irregular().prompt_units) is None


@pytest.mark.parametrize("method", METHODS)
def test_a_past_too_far_for_an_exponential_kernel_counts_neither_in_a_log_nor_in_a_run(method):
    """In a log such a past counted until its weight vanished, and before that `kae_eb` gave NaN."""
    baseline, rng = risk_baseline(f"{method}:bandwidth=2,kernel=exponential"), np.random.default_rng(0)
    for gap in (200, 235, 500, 740, 900):
        step = np.repeat([0, 1, 2, 2 + 2 * gap], [24, 24, 24, 6])
        prompt = np.concatenate([np.repeat(np.arange(6), 4)] * 3 + [np.arange(6)])
        reward = (rng.random(len(step)) < 0.5).astype(float)
        estimator = AdvantageEstimator(baseline)
        for now in np.unique(step):
            estimator.step(prompt[step == now].tolist(), reward[step == now], int(now))
        values, _ = replay.replay(RewardLog(prompt, step, reward), baseline)
        np.testing.assert_allclose(values[-6:], estimator.values, atol=1e-7)


@pytest.mark.parametrize(("unit", "zero"), [(0.7, 0.1), (10.0, 0.0), (-1.1, 1.3)])
def test_what_enters_and_leaves_a_window_is_no_noise_in_any_unit(unit, zero):
    """Where all others have equal rewards, rounding was their noise and drift: values were off by 700 ranges."""
    rng = np.random.default_rng(0)
    step = np.repeat(np.cumsum(rng.choice([1, 2, 3, 8], size=150)), 18)
    prompt = np.tile(np.repeat(np.arange(9), 2), 150)
    reward = np.where(prompt == 0, rng.random(len(step)) < 0.5, 1.0)
    for bandwidth in (9, 40.3):
        baseline = risk_baseline(f"kae_eb:bandwidth={bandwidth}")
        found, _ = replay.replay(RewardLog(prompt, step, zero + unit * reward), baseline)
        expected, _ = replay.replay(RewardLog(prompt, step, reward), baseline)
        np.testing.assert_allclose((found - zero) / unit, expected, atol=1e-9)
