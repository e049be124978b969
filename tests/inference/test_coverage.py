"""Coverage of the intervals, with both error rates stated and a negative control each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from kaestat.core.arrays import Groups, Visits
from kaestat.core.bootstrap import cluster_bootstrap, mean_with_interval
from kaestat.inference import LinearFit, ValueInterval, value_interval
from kaestat.theory import integer_bandwidth_error, optimal_integer_bandwidth
from tests.helpers.statistical import Discrepancy, check_mean, generator

N = 40_000
DRIFT, GROUP, CURRENT = 0.001, 16, 0.47  # the value falls by DRIFT a step to CURRENT, close to variance 1/4 throughout


def simulate(values: np.ndarray, group: int, salt: int) -> tuple[Groups, Visits]:
    """N prompts with 0/1 rewards; ``values`` are those of the visits at lags V, ..., 1 and of the current step."""
    rng = generator(salt)
    total = rng.binomial(group, values[:-1], size=(N, len(values) - 1)).astype(float)
    lag = np.arange(len(values) - 1, 0.0, -1) + np.zeros_like(total)
    visits = Visits(lag=lag, count=np.full_like(total, float(group)), total=total, total_sq=total)
    return Groups((rng.random((N, group)) < values[-1]).astype(float)), visits


def covers(interval: ValueInterval, value: float) -> np.ndarray:
    return ((interval.low <= value) & (value <= interval.high)).astype(float)


@pytest.fixture(scope="module")
def worst_case():
    """The drift that is worst for a kernel mean, at the bandwidth that is best for it."""
    bandwidth = optimal_integer_bandwidth(lipschitz=DRIFT, noise_variance=0.25 / GROUP)
    groups, visits = simulate(CURRENT + DRIFT * np.arange(bandwidth - 1, -1.0, -1), GROUP, salt=11)

    def interval(**arguments) -> ValueInterval:
        return value_interval(groups, visits, step=bandwidth, bandwidth=bandwidth, **arguments)

    return bandwidth, interval


def test_the_honest_interval_covers_at_worst_case_drift(worst_case):
    interval = worst_case[1](kind="honest", lipschitz=DRIFT)
    check_mean(covers(interval, CURRENT), target=0.95, detect=0.01, side="at least")


def test_the_naive_interval_covers_only_89_percent_there(worst_case):
    bandwidth, interval = worst_case
    error = integer_bandwidth_error(bandwidth, lipschitz=DRIFT, noise_variance=0.25 / GROUP)
    relative_bias = float(error.bias / np.sqrt(error.variance))
    assert relative_bias == pytest.approx(np.sqrt(1 / 2), abs=0.03)  # squared bias is half the variance at the optimum
    expected = ndtr(1.96 - relative_bias) - ndtr(-1.96 - relative_bias)
    assert expected == pytest.approx(0.89, abs=0.005)
    naive = covers(interval(kind="normal"), CURRENT)
    check_mean(naive, target=expected, detect=0.015)
    with pytest.raises(Discrepancy):
        check_mean(naive, target=0.95, detect=0.015, side="at least")


def test_an_honest_interval_told_half_the_drift_is_caught(worst_case):
    interval = worst_case[1](kind="honest", lipschitz=DRIFT / 2)
    with pytest.raises(Discrepancy):
        check_mean(covers(interval, CURRENT), target=0.95, detect=0.015, side="at least")


def test_the_robust_interval_covers_a_straight_drift(worst_case):
    """A local linear fit has no bias on a straight line, however steep: the length is the price, not the coverage."""
    robust = worst_case[1](kind="robust")
    check_mean(covers(robust, CURRENT), target=0.95, detect=0.015)
    uncentred = replace(robust, low=robust.low + 0.5 * robust.se, high=robust.high + 0.5 * robust.se)
    with pytest.raises(Discrepancy):
        check_mean(covers(uncentred, CURRENT), target=0.95, detect=0.015)


def test_the_normal_interval_covers_a_constant_value():
    groups, visits = simulate(np.full(20, 0.4), 16, salt=12)
    interval = value_interval(groups, visits, step=19, bandwidth=20, kind="normal")
    check_mean(covers(interval, 0.4), target=0.95, detect=0.015)
    with pytest.raises(Discrepancy):  # the variance of a mean that forgets how unequal the weights are
        fit = LinearFit.kernel_mean(groups, visits, step=19, bandwidth=20)
        narrow = 1.96 * np.sqrt(fit.reward_variance / (20 * 16))
        check_mean(np.abs(fit.estimate - 0.4) <= narrow, target=0.95, detect=0.015)


def test_the_squared_standard_error_is_unbiased_though_value_and_variance_drift():
    values = np.linspace(0.9, 0.05, 8)
    groups, visits = simulate(values, 2, salt=13)
    for fit in (
        kernel_mean := LinearFit.kernel_mean(groups, visits, step=7, bandwidth=9),
        kernel_mean.local_linear(),
    ):
        exact = (fit.weight[0] ** 2 * 2 * values * (1 - values)).sum()
        check_mean(fit.standard_error() ** 2, target=exact, detect=0.06 * exact)
        with pytest.raises(Discrepancy):  # the scatter about the fit counts the drift as noise
            scatter = (fit.weight * fit.sample.total_sq).sum(axis=1) - fit.estimate**2
            check_mean(scatter / fit.effective_size, target=exact, detect=0.06 * exact)


def test_the_bernstein_interval_covers_rare_successes_where_the_normal_one_fails():
    groups, visits = simulate(np.full(6, 0.02), 4, salt=14)
    arguments = dict(step=5, bandwidth=10)
    bernstein = covers(value_interval(groups, visits, kind="bernstein", **arguments), 0.02)
    check_mean(bernstein, target=0.95, detect=0.01, side="at least")
    normal = covers(value_interval(groups, visits, kind="normal", **arguments), 0.02)
    assert normal.mean() < 0.5  # most prompts see no success at all, and get an interval of length 0
    with pytest.raises(Discrepancy):
        check_mean(normal, target=0.95, detect=0.02, side="at least")


def test_the_bernstein_interval_covers_at_worst_case_drift_only_with_the_bias_added():
    bandwidth, drift = 30, 0.01
    groups, visits = simulate(0.1 + drift * np.arange(bandwidth - 1, -1.0, -1), 64, salt=15)
    arguments = dict(step=bandwidth, bandwidth=bandwidth, kind="bernstein")
    widened = covers(value_interval(groups, visits, lipschitz=drift, **arguments), 0.1)
    check_mean(widened, target=0.95, detect=0.01, side="at least")
    with pytest.raises(Discrepancy):
        check_mean(covers(value_interval(groups, visits, **arguments), 0.1), target=0.95, detect=0.02, side="at least")


def test_each_part_of_the_bernstein_bound_is_exceeded_as_rarely_as_stated():
    """The variance bound alone: ``sigma^2 <= s`` with probability 1 - delta / 3, at delta = 0.3."""
    values, group = np.full(4, 0.1), 3
    fit = LinearFit.kernel_mean(*simulate(values, group, salt=16), step=3, bandwidth=6)
    exact = (fit.weight[0] ** 2 * group * values * (1 - values)).sum()
    spread = (fit.weight**2 * group * fit.visit_variance).sum(axis=1)
    step = (fit.weight[0] ** 2).max() * group / (group - 1) * np.log(3 / 0.3)
    bound = (np.sqrt(step / 2) + np.sqrt(spread + step / 2)) ** 2
    check_mean(bound >= exact, target=0.9, detect=0.01, side="at least")
    with pytest.raises(Discrepancy):  # the estimate itself is below the variance far more often
        check_mean(spread >= exact, target=0.9, detect=0.02, side="at least")


def test_the_bootstrap_interval_over_prompts_covers_and_one_over_visits_does_not():
    """Percentile intervals of the mean of 60 prompts with 5 dependent visits each."""
    n_prompts, n_visits, at_once, rounds = 60, 5, 40, 250
    rng = generator(17)
    covered = np.empty((2, rounds))
    for r in range(rounds):
        effect = rng.standard_normal((n_prompts, 1, at_once))
        visits = effect + 0.5 * rng.standard_normal((n_prompts, n_visits, at_once))
        for kind, samples in enumerate((visits.mean(axis=1), visits.reshape(-1, at_once))):
            draws = cluster_bootstrap(samples, n_boot=600, seed=int(rng.integers(2**31)))
            _, _, low, high = mean_with_interval(samples, draws)
            covered[kind, r] = ((low <= 0) & (0 <= high)).mean()  # columns share draws: one observation a round
    check_mean(covered[0], target=0.95, detect=0.02, side="at least")
    check_mean(covered[0], target=0.97, detect=0.015, side="at most")  # the end on the longer tail is moved out
    with pytest.raises(Discrepancy):
        check_mean(covered[1], target=0.95, detect=0.05, side="at least")


@pytest.mark.parametrize("n_prompts", [4, 60])
def test_the_interval_of_a_mean_over_few_prompts_covers_too(n_prompts):
    samples = generator(18).standard_normal((n_prompts, 20_000))
    _, se, low, high = mean_with_interval(samples, np.empty((0, 20_000)))
    check_mean((low <= 0) & (0 <= high), target=0.95, detect=0.015, side="at least")
    check_mean((low <= 0) & (0 <= high), target=0.97, detect=0.015, side="at most")
    if n_prompts == 4:
        with pytest.raises(Discrepancy):  # the normal interval
            check_mean(np.abs(samples.mean(axis=0)) <= 1.96 * se, target=0.95, detect=0.02)


def test_the_interval_of_a_mean_of_skewed_contributions_covers_and_students_does_not():
    """40 prompts whose contributions have a skewness of 3.8, as value MSE has where nearly all rewards are 1."""
    shape, n_prompts = 0.28, 40
    samples = generator(19).gamma(shape, size=(n_prompts, 20_000))
    mean, se, low, high = mean_with_interval(samples, np.empty((0, 20_000)))
    check_mean((low <= shape) & (shape <= high), target=0.94, detect=0.015, side="at least")
    with pytest.raises(Discrepancy):
        check_mean(np.abs(mean - shape) <= 2.0227 * se, target=0.94, detect=0.02, side="at least")
