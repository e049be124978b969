"""Value intervals: hand-computed cases, external oracles, limits, arrays of either kind, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import ndtr, stdtr, stdtrit

from kaestat.baselines import Kae, LocalLinear
from kaestat.core.arrays import Groups, Visits
from kaestat.inference import KINDS, LinearFit, effective_sample_size, honest_critical_value, value_interval
from kaestat.inference.bernstein import bernstein_half_width
from kaestat.smoothing.kernels import KERNELS

Z = 1.959963984540054
OPTIONS = dict(step=12, lipschitz=0.01)


def binary_past(rng, shape, *, group=8, rate=0.4) -> Visits:
    total = rng.binomial(group, rate, size=shape).astype(float)
    lag = np.arange(shape[-1], 0.0, -1) + np.zeros(shape)
    return Visits(lag=lag, count=np.full(shape, float(group)), total=total, total_sq=total)


def binary_groups(rng, shape, *, rate=0.4) -> Groups:
    return Groups((rng.random(shape) < rate).astype(float))


@pytest.fixture
def rng():
    return np.random.default_rng(5)


@pytest.fixture
def data(rng):
    return binary_groups(rng, (6, 8)), binary_past(rng, (6, 12))


def hand_computed() -> tuple[Groups, Visits]:
    """Bandwidth 4: weights K of 2, 1.5, 1 at lags 0, 1, 2, two completions each, so a mass of 9."""
    past = Visits(*(np.array([row]) for row in ([2.0, 1.0], [2.0, 2.0], [1.0, 2.0], [1.0, 2.0])))
    return Groups(np.array([[1.0, 0.0]])), past


def test_the_normal_interval_of_a_hand_computed_case():
    interval = value_interval(*hand_computed(), step=2, bandwidth=4, kind="normal")
    # Rewards {1,0}, {1,1}, {1,0} at lags 0, 1, 2: (2 + 3 + 1) / 9; within variances 1/2, 0, 1/2.
    variance = (2**2 * 2 * 0.5 + 0 + 1**2 * 2 * 0.5) / 81
    assert interval.estimate[0] == pytest.approx(6 / 9)
    assert interval.se[0] == pytest.approx(math.sqrt(variance))
    assert interval.low[0] == pytest.approx(6 / 9 - Z * math.sqrt(variance))
    assert interval.high[0] == pytest.approx(6 / 9 + Z * math.sqrt(variance))
    assert interval.effective_size[0] == pytest.approx(81 / (2 * (4 + 2.25 + 1)))


def test_the_bernstein_interval_of_a_hand_computed_case():
    interval = value_interval(*hand_computed(), step=2, bandwidth=4, kind="bernstein", bounds=(-9, 9), lipschitz=0.3)
    log, spread, largest = math.log(3 / 0.05), 5 / 81, 18 * 2 / 9
    step = 18**2 * (2 / 9) ** 2 * 2 / (2 - 1)
    s = (math.sqrt(step * log / 2) + math.sqrt(spread + step * log / 2)) ** 2
    bias = 0.3 * (3 * 1 + 2 * 2) / 9
    half_width = math.sqrt(2 * s * log) + largest * log / 3 + bias
    assert (interval.low[0], interval.high[0]) == (-9, 9)  # cut to the bounds: this little data says nothing
    fit = LinearFit.kernel_mean(*hand_computed(), step=2, bandwidth=4)
    total = bernstein_half_width(fit, 0.95, (-9, 9)) + fit.bias_bound(0.3)
    assert total[0] == pytest.approx(half_width)


def test_bernstein_with_one_group_and_equal_weights_is_within_maurer_and_pontils_bound():
    reward = np.array([[1.0, 0.0] * 200])
    fit = LinearFit.kernel_mean(Groups(reward), Visits.empty(Groups(reward)), step=0)
    n, log, variance = 400, math.log(3 / 0.05), reward.var(ddof=1)
    loose = math.sqrt(2 * log / n) * (math.sqrt(variance) + math.sqrt(2 * log / (n - 1))) + log / (3 * n)
    half_width = bernstein_half_width(fit, 0.95, (0, 1))[0]
    assert half_width < loose
    assert half_width > math.sqrt(2 * log * variance / n) + log / (3 * n)  # Bernstein's own, with the variance known


def test_bernstein_takes_the_largest_variance_for_visits_of_one_completion(rng):
    groups, past = binary_groups(rng, (3, 1)), binary_past(rng, (3, 9), group=1)
    fit = LinearFit.kernel_mean(groups, past, step=9, kernel="uniform", bandwidth=math.inf)
    log = math.log(3 / 0.05)
    expected = math.sqrt(2 * log * 0.25 / 10) + log / 30
    np.testing.assert_allclose(bernstein_half_width(fit, 0.95, (0, 1)), expected)


def test_the_robust_interval_centres_on_the_local_linear_fit(data):
    groups, past = data
    # The baseline leaves one completion out: an extra one that is left out itself makes it use the whole group.
    extended = Groups(np.concatenate([groups.reward, np.zeros((6, 1))], axis=1))
    fitted = LocalLinear(bandwidth=7.5).values(extended, past, step=12)[:, -1]
    interval = value_interval(groups, past, bandwidth=7.5, kind="robust", **OPTIONS)
    np.testing.assert_allclose(interval.estimate, fitted, rtol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_estimate_uses_the_whole_current_group(data, kernel):
    groups, past = data
    extended = Groups(np.concatenate([groups.reward, np.zeros((6, 1))], axis=1))
    whole = Kae(kernel=kernel, bandwidth=7.5).values(extended, past, step=12)[:, -1]
    for kind in ("normal", "honest", "bernstein"):
        interval = value_interval(groups, past, kernel=kernel, bandwidth=7.5, kind=kind, **OPTIONS)
        np.testing.assert_allclose(interval.estimate, whole, rtol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "theirs"), [("triangular", "tri"), ("uniform", "uni"), ("epanechnikov", "epa"), ("half-normal", "gau")]
)
def test_normal_and_robust_intervals_agree_with_nprobust(data, kernel, theirs):
    """``p=0, rho=1`` is the kernel mean and the local linear fit.

    With at least three ties at each lag, the nearest neighbours of ``vce="nn"`` are the visit itself, and the variance
    is the unbiased one within visits.
    """
    nprobust = pytest.importorskip("nprobust", reason="the oracle of the test extra (pip install kaestat[test])")
    groups, past = data
    for row in range(len(groups.reward)):
        ones = np.arange(8) < past.total[row][:, None]
        reward = np.concatenate([ones.reshape(-1), groups.reward[row]]).astype(float)
        time = np.concatenate([np.repeat(-past.lag[row], 8), np.zeros(8)])
        fit = nprobust.lprobust(
            reward, time, eval=[0.0], p=0, h=7.3, rho=1.0, kernel=theirs, vce="nn", masspoints="off"
        ).Estimate.iloc[0]
        for kind, estimate, se in (("normal", "tau.us", "se.us"), ("robust", "tau.bc", "se.rb")):
            interval = value_interval(groups, past, kernel=kernel, bandwidth=7.3, kind=kind, **OPTIONS)
            assert interval.estimate[row] == pytest.approx(fit[estimate], abs=1e-10)
            assert interval.se[row] == pytest.approx(fit[se], abs=1e-10)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.999999])
def test_honest_critical_values_are_quantiles_of_the_folded_normal(level):
    for bias in (0.0, 1e-8, 0.05, 0.7071, 3.0, 40.0, 1e6):
        exact = brentq(lambda c, t=bias: ndtr(c - t) - ndtr(-c - t) - level, 0, bias + 10, xtol=1e-13)
        assert honest_critical_value(bias, level) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("freedom", [2.0, 7.0, 38.0])
def test_honest_critical_values_are_students_where_the_standard_error_is_estimated(freedom):
    for bias in (0.0, 0.05, 0.7071, 3.0, 40.0):
        exact = brentq(
            lambda c, b=bias: stdtr(freedom, c - b) - stdtr(freedom, -c - b) - 0.95, 0, bias + 50, xtol=1e-13
        )
        assert honest_critical_value(bias, 0.95, freedom) == pytest.approx(exact, rel=1e-9)
    mixed = honest_critical_value([0.5, 0.5, 0.5], 0.95, [freedom, np.inf, np.nan])
    assert mixed[:2].tolist() == [honest_critical_value(0.5, 0.95, freedom), honest_critical_value(0.5)]
    assert np.isnan(mixed[2])


def test_degrees_of_freedom_are_those_of_the_pooled_variance():
    lag, count = np.array([[2.0, 1.0]]), np.array([[4.0, 4.0]])
    past = Visits(lag=lag, count=count, total=np.array([[1.0, 3.0]]), total_sq=np.array([[1.0, 3.0]]))
    fit = LinearFit.kernel_mean(Groups(np.array([[1.0, 0, 0, 1]])), past, step=2, bandwidth=np.inf)
    assert fit.degrees_of_freedom[0] == pytest.approx(3 * (4 - 1))  # equal weights: three visits of four
    single = Visits(lag=lag, count=np.ones((1, 2)), total=np.array([[1.0, 0.0]]), total_sq=np.array([[1.0, 0.0]]))
    fit = LinearFit.kernel_mean(Groups(np.array([[1.0]])), single, step=2, bandwidth=np.inf)
    assert fit.degrees_of_freedom[0] == pytest.approx(3 - 1)  # scatter of three rewards about their mean


def test_honest_critical_values_refuse_what_is_no_bias_or_level():
    with pytest.raises(ValueError, match="relative_bias must be non-negative"):
        honest_critical_value([0.1, -0.1])
    with pytest.raises(ValueError, match="level must lie in"):
        honest_critical_value(0.1, 1.0)


@pytest.mark.parametrize("bias", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("freedom", [1e9, 1e12, 1e16, 1e70])
def test_honest_critical_values_of_many_degrees_of_freedom_are_the_normal_ones(bias, freedom):
    np.testing.assert_allclose(honest_critical_value(bias, 0.95, freedom), honest_critical_value(bias), rtol=2e-9)


def test_the_honest_interval_is_the_normal_one_without_drift_and_grows_by_the_bias(data):
    known = {"step": 12, "reward_variance": 0.2}
    normal = value_interval(*data, kind="normal", **known)
    still = value_interval(*data, kind="honest", lipschitz=0.0, **known)
    np.testing.assert_allclose(still.low, normal.low, rtol=1e-12)
    drifting = value_interval(*data, kind="honest", lipschitz=0.5, **known)
    bias = LinearFit.kernel_mean(*data, step=12).bias_bound(0.5)
    # Where the bias dwarfs the noise, only one tail is left.
    np.testing.assert_allclose(drifting.high - drifting.estimate, bias + 1.6448536269514722 * drifting.se, rtol=1e-9)


def test_the_honest_interval_of_rewards_that_are_all_alike_is_the_bias_alone():
    groups = Groups(np.ones((1, 8)))
    past = Visits(lag=np.array([[1.0]]), count=np.array([[8.0]]), total=np.array([[8.0]]), total_sq=np.array([[8.0]]))
    interval = value_interval(groups, past, step=1, bandwidth=2, kind="honest", lipschitz=0.3)
    assert interval.se[0] == 0
    assert interval.high[0] - interval.estimate[0] == pytest.approx(0.3 * 1 / 3)


def test_lipschitz_constants_may_differ_between_prompts(data):
    drift = np.linspace(0, 0.1, 6)
    together = value_interval(*data, step=12, kind="honest", lipschitz=drift)
    for p in range(6):
        alone = value_interval(*data, step=12, kind="honest", lipschitz=float(drift[p]))
        assert together.high[p] == alone.high[p]


def test_a_known_reward_variance_replaces_the_estimate(data):
    interval = value_interval(*data, step=12, kind="normal", reward_variance=0.24)
    np.testing.assert_allclose(interval.se, np.sqrt(0.24 / interval.effective_size), rtol=1e-12)


def test_with_one_completion_per_visit_the_variance_is_the_scatter_about_the_fit(rng):
    groups, past = binary_groups(rng, (4, 1)), binary_past(rng, (4, 15), group=1)
    interval = value_interval(groups, past, step=15, kind="normal", bandwidth=12)
    m, size = interval.estimate, interval.effective_size
    np.testing.assert_allclose(interval.se**2, m * (1 - m) / (1 - 1 / size) / size, rtol=1e-10)


def test_the_robust_interval_keeps_its_width_where_the_linear_fit_leaves_zero_to_one():
    """One reward of 1 just now after zeros: the fit exceeds 1, and ``m (1 - m)`` there would be no variance."""
    zeros = np.zeros((1, 4))
    past = Visits(lag=np.array([[4.0, 3.0, 2.0, 1.0]]), count=zeros + 1, total=zeros.copy(), total_sq=zeros.copy())
    past.total[0, -1] = past.total_sq[0, -1] = 1.0
    interval = value_interval(Groups(np.ones((1, 1))), past, step=4, bandwidth=6, kind="robust")
    assert interval.estimate[0] > 1
    fit = LinearFit.kernel_mean(Groups(np.ones((1, 1))), past, step=4, bandwidth=6)
    m = fit.estimate[0]
    variance = m * (1 - m) / (1 - 1 / fit.effective_size[0])
    assert interval.se[0] == pytest.approx(math.sqrt(variance / interval.effective_size[0]))


def test_visits_of_one_completion_borrow_the_variance_of_the_others(rng):
    groups, past = binary_groups(rng, (1, 8)), binary_past(rng, (1, 3))
    past.count[0, 1], past.total[0, 1], past.total_sq[0, 1] = 1.0, 1.0, 1.0
    fit = LinearFit.kernel_mean(groups, past, step=3, kernel="uniform")
    kept = [(8.0, past.total[0, 0]), (8.0, past.total[0, 2]), (8.0, groups.reward.sum())]
    expected = np.mean([s * (n - s) / (n * (n - 1)) for n, s in kept])
    assert fit.reward_variance[0] == pytest.approx(expected)
    assert fit.standard_error()[0] == pytest.approx(math.sqrt(expected / 25))


def test_a_prompt_without_a_past_is_its_group_alone():
    reward = np.array([[1.0, 0.0, 0.0, 1.0, 1.0]])
    groups = Groups(reward)
    for kind in ("normal", "robust", "honest"):
        interval = value_interval(groups, Visits.empty(groups), step=0, kind=kind, lipschitz=0.1)
        assert interval.estimate[0] == pytest.approx(0.6)
        assert interval.se[0] == pytest.approx(reward.std(ddof=1) / math.sqrt(5))
        # The honest interval allows for four degrees of freedom.
        critical = stdtrit(4, 0.975) if kind == "honest" else Z
        assert interval.high[0] == pytest.approx(0.6 + critical * interval.se[0])


def test_without_a_current_group_the_past_alone_speaks(rng):
    past = binary_past(rng, (3, 6))
    interval = value_interval(Groups(np.zeros((3, 0))), past, step=6, kind="honest", lipschitz=0.01, bandwidth=9)
    weight = (1 - past.lag / 9) / (8 * (1 - past.lag / 9).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(interval.estimate, (weight * past.total).sum(axis=1))
    bias = LinearFit.kernel_mean(Groups(np.zeros((3, 0))), past, step=6, bandwidth=9).bias_bound(0.01)
    np.testing.assert_allclose(bias, 0.01 * (8 * weight * past.lag).sum(axis=1))


@pytest.mark.parametrize("kind", KINDS)
def test_no_data_and_lone_completions_give_nan_instead_of_a_false_interval(kind):
    groups = Groups(np.array([[1.0], [0.0]]), mask=np.array([[True], [False]]))
    interval = value_interval(groups, Visits.empty(groups), step=0, kind=kind, lipschitz=0.1)
    assert interval.estimate[0] == 1.0
    assert np.isnan(interval.estimate[1])
    assert np.isnan(interval.low[1]) and np.isnan(interval.high[1])
    assert np.isnan(interval.se).all()
    if kind in ("chernoff", "score", "bernstein"):  # need no estimate of the variance
        # One success of one: chernoff's end is the p at which that has probability .025, score's z^2 = 1 / (1 + z^2).
        low = {"chernoff": 0.025, "score": 1 / (1 + Z**2), "bernstein": 0.0}[kind]
        assert (interval.low[0], interval.high[0]) == pytest.approx((low, 1.0), abs=2e-6)
    else:
        assert np.isnan(interval.low[0])


@pytest.mark.parametrize("kind", KINDS)
def test_padding_holds_nothing_that_matters(data, kind, rng):
    groups, past = data
    plain = value_interval(groups, past, kind=kind, **OPTIONS)
    mask = np.concatenate([np.ones((6, 8), dtype=bool), np.zeros((6, 2), dtype=bool)], axis=1)
    padded_groups = Groups(np.concatenate([groups.reward, np.full((6, 2), 1e6)], axis=1), mask=mask)
    columns = {name: getattr(past, name) for name in ("lag", "count", "total", "total_sq")}
    padded = Visits(**{k: np.insert(v, 4, 777.0 if k == "lag" else 0.0, axis=1) for k, v in columns.items()})
    other = value_interval(padded_groups, padded, kind=kind, **OPTIONS)
    for name in ("estimate", "se", "low", "high", "effective_size"):
        np.testing.assert_allclose(getattr(other, name), getattr(plain, name), rtol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_leading_axes_and_rows_are_independent_problems(rng, kind):
    groups, past = binary_groups(rng, (3, 4, 8)), binary_past(rng, (3, 4, 7))
    together = value_interval(groups, past, kind=kind, **OPTIONS)
    assert together.estimate.shape == (3, 4)
    columns = {name: getattr(past, name)[1, 2:3] for name in ("lag", "count", "total", "total_sq")}
    alone = value_interval(Groups(groups.reward[1, 2:3]), Visits(**columns), kind=kind, **OPTIONS)
    assert alone.low[0] == pytest.approx(together.low[1, 2], rel=1e-12)
    assert list(together.to_frame().columns[:3]) == ["axis_0", "prompt", "estimate"]
    assert len(together.to_frame()) == 12


@pytest.mark.parametrize("kind", KINDS)
def test_torch_agrees_with_numpy_and_keeps_its_type(data, kind):
    groups, past = data
    names = ("lag", "count", "total", "total_sq")
    for dtype, digits in ((torch.float64, 1e-11), (torch.float32, 1e-4)):
        tensors = Visits(**{name: torch.from_numpy(getattr(past, name)).to(dtype) for name in names})
        interval = value_interval(Groups(torch.from_numpy(groups.reward).to(dtype)), tensors, kind=kind, **OPTIONS)
        expected = value_interval(groups, past, kind=kind, **OPTIONS)
        for name in ("estimate", "se", "low", "high", "effective_size"):
            assert getattr(interval, name).dtype == dtype
            np.testing.assert_allclose(getattr(interval, name), getattr(expected, name), rtol=digits, atol=digits)
        assert len(interval.to_frame()) == 6


def test_every_interval_contains_its_estimate_and_widens_with_the_level(data):
    for kind in KINDS:
        narrow, wide = (value_interval(*data, kind=kind, level=level, **OPTIONS) for level in (0.9, 0.99))
        assert ((narrow.low <= narrow.estimate) & (narrow.estimate <= narrow.high)).all()
        assert (wide.high - wide.low > narrow.high - narrow.low).all()


def test_the_frame_has_one_named_row_per_prompt(data):
    groups = Groups(data[0].reward, prompt_ids=list("abcdef"))
    frame = value_interval(groups, data[1], step=12, kind="normal").to_frame()
    assert list(frame["prompt"]) == list("abcdef")
    assert list(frame.columns) == ["prompt", "estimate", "se", "low", "high", "effective_size", "kind", "level"]
    assert set(frame["kind"]) == {"normal"} and set(frame["level"]) == {0.95}


def test_effective_sample_size_counts_equal_weights_and_ignores_their_scale():
    count = np.array([8.0, 4.0, 0.0])
    assert effective_sample_size(np.array([3.0, 3.0, 3.0]), count) == pytest.approx(12)
    assert effective_sample_size(np.array([2.0, 1.0, 0.0]), count) == pytest.approx(20**2 / 36)
    assert effective_sample_size(np.zeros(3), count) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(kind="wald"), "kind must be one of chernoff, score, normal, robust, honest, bernstein, got 'wald'"),
        (dict(kind="honest"), "needs lipschitz"),
        (dict(kind="honest", lipschitz=-0.1), "lipschitz must be non-negative"),
        (dict(kind="honest", lipschitz=np.array([-0.1] * 6)), "lipschitz must be non-negative"),
        (dict(level=95), "level must lie in"),
        (dict(reward_variance=-1.0), "reward_variance must be non-negative"),
        (dict(kind="bernstein", bounds=(1, 0)), "bounds must be two finite numbers"),
        (dict(kind="bernstein", bounds=(0, math.inf)), "bounds must be from"),
        (dict(kind="bernstein", bounds=(0, 0.01)), "rewards lie outside bounds"),
        (dict(bandwidth=0), "bandwidth must be positive"),
        (dict(kernel="cosine"), "unknown name 'cosine'"),
    ],
)
def test_bad_input_is_refused_by_name(data, arguments, message):
    with pytest.raises(ValueError, match=message):
        value_interval(*data, step=12, **arguments)


def test_no_prompts_have_no_intervals():
    none = Visits(*(np.zeros((0, 2)) for _ in range(4)))
    interval = value_interval(Groups(np.zeros((0, 3))), none, step=4, kind="honest", lipschitz=0.1)
    assert interval.estimate.shape == (0,)


def test_a_lipschitz_constant_for_other_prompts_is_refused(data):
    with pytest.raises(ValueError, match=r"do not fit together.*lipschitz \(4,\)"):
        value_interval(*data, step=12, kind="honest", lipschitz=np.ones(4))
