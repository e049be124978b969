"""Value intervals: hand-computed cases, limits, arrays of either kind, bad input."""

import math

import numpy as np
import pytest
import torch

from kaestat.baselines import Kae
from kaestat.core.arrays import Groups, Visits
from kaestat.inference import KINDS, LinearFit, value_interval
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


def test_the_estimate_of_a_hand_computed_case():
    interval = value_interval(*hand_computed(), step=2, bandwidth=4)
    # Rewards {1,0}, {1,1}, {1,0} at lags 0, 1, 2: (2 + 3 + 1) / 9.
    assert interval.estimate[0] == pytest.approx(6 / 9)
    assert interval.effective_size[0] == pytest.approx(81 / (2 * (4 + 2.25 + 1)))


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_estimate_uses_the_whole_current_group(data, kernel):
    groups, past = data
    extended = Groups(np.concatenate([groups.reward, np.zeros((6, 1))], axis=1))
    whole = Kae(kernel=kernel, bandwidth=7.5).values(extended, past, step=12)[:, -1]
    for kind in KINDS:
        interval = value_interval(groups, past, kernel=kernel, bandwidth=7.5, kind=kind, **OPTIONS)
        np.testing.assert_allclose(interval.estimate, whole, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_independent_problems_each_with_its_lipschitz_constant(rng, kind):
    groups, past, drift = binary_groups(rng, (3, 4, 8)), binary_past(rng, (3, 4, 7)), np.linspace(0, 0.1, 4)
    together = value_interval(groups, past, step=12, kind=kind, lipschitz=drift)
    columns = {name: getattr(past, name)[1, 2:3] for name in ("lag", "count", "total", "total_sq")}
    alone = value_interval(Groups(groups.reward[1, 2:3]), Visits(**columns), step=12, kind=kind, lipschitz=drift[2])
    assert together.estimate.shape == (3, 4)
    assert (alone.low[0], alone.high[0]) == pytest.approx((together.low[1, 2], together.high[1, 2]), rel=1e-9)


@pytest.mark.parametrize("group", [1, 8])
def test_without_a_current_group_the_past_alone_speaks(group, rng):
    past = binary_past(rng, (3, 6), group=group)
    interval = value_interval(Groups(np.zeros((3, 0))), past, step=6, lipschitz=0.01, bandwidth=9)
    weight = (1 - past.lag / 9) / (group * (1 - past.lag / 9).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(interval.estimate, (weight * past.total).sum(axis=1))
    bias = LinearFit.kernel_mean(Groups(np.zeros((3, 0))), past, step=6, bandwidth=9).bias_bound(0.01)
    np.testing.assert_allclose(bias, 0.01 * (group * weight * past.lag).sum(axis=1))


@pytest.mark.parametrize("kind", KINDS)
def test_no_data_and_lone_completions_give_nan_instead_of_a_false_interval(kind):
    groups = Groups(np.array([[1.0], [0.0]]), mask=np.array([[True], [False]]))
    interval = value_interval(groups, Visits.empty(groups), step=0, kind=kind, lipschitz=0.1)
    assert interval.estimate[0] == 1.0
    assert np.isnan(interval.estimate[1])
    assert np.isnan(interval.low[1]) and np.isnan(interval.high[1])
    # One success of one: chernoff's end is the p at which that has probability .025, score's z^2 = 1 / (1 + z^2).
    low = {"chernoff": 0.025, "score": 1 / (1 + Z**2)}[kind]
    assert (interval.low[0], interval.high[0]) == pytest.approx((low, 1.0), abs=2e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_holds_nothing_that_matters(data, kind, rng):
    groups, past = data
    plain = value_interval(groups, past, kind=kind, **OPTIONS)
    mask = np.concatenate([np.ones((6, 8), dtype=bool), np.zeros((6, 2), dtype=bool)], axis=1)
    padded_groups = Groups(np.concatenate([groups.reward, np.full((6, 2), 1e6)], axis=1), mask=mask)
    columns = {name: getattr(past, name) for name in ("lag", "count", "total", "total_sq")}
    padded = Visits(**{k: np.insert(v, 4, 777.0 if k == "lag" else 0.0, axis=1) for k, v in columns.items()})
    other = value_interval(padded_groups, padded, kind=kind, **OPTIONS)
    for name in ("estimate", "low", "high", "effective_size"):
        np.testing.assert_allclose(getattr(other, name), getattr(plain, name), rtol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_torch_agrees_with_numpy_and_keeps_its_type(data, kind):
    groups, past = data
    names = ("lag", "count", "total", "total_sq")
    for dtype, digits in ((torch.float64, 1e-11), (torch.float32, 1e-4)):
        tensors = Visits(**{name: torch.from_numpy(getattr(past, name)).to(dtype) for name in names})
        interval = value_interval(Groups(torch.from_numpy(groups.reward).to(dtype)), tensors, kind=kind, **OPTIONS)
        expected = value_interval(groups, past, kind=kind, **OPTIONS)
        for name in ("estimate", "low", "high", "effective_size"):
            assert getattr(interval, name).dtype == dtype
            np.testing.assert_allclose(getattr(interval, name), getattr(expected, name), rtol=digits, atol=digits)


def test_every_interval_contains_its_estimate_and_widens_with_the_level(data):
    for kind in KINDS:
        narrow, wide = (value_interval(*data, kind=kind, level=level, **OPTIONS) for level in (0.9, 0.99))
        assert ((narrow.low <= narrow.estimate) & (narrow.estimate <= narrow.high)).all()
        assert (wide.high - wide.low > narrow.high - narrow.low).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(kind="wald"), "kind must be one of chernoff, score"),
        (dict(lipschitz=-0.1), "lipschitz must be non-negative"),
        (dict(lipschitz=np.ones(4)), r"do not fit together.*lipschitz \(4,\)"),
        (dict(level=95), "level must lie in"),
        (dict(bounds=(1, 0)), "bounds must be two finite numbers"),
        (dict(bounds=(0, math.inf)), "bounds must be finite"),
        (dict(bounds=(0, 0.01)), "rewards lie outside bounds"),
        (dict(bandwidth=0), "bandwidth must be positive"),
        (dict(kernel="cosine"), "unknown name 'cosine'"),
    ],
)
def test_bad_input_is_refused_by_name(data, arguments, message):
    with pytest.raises(ValueError, match=message):
        value_interval(*data, step=12, **arguments)


def test_no_prompts_have_no_intervals():
    none = Visits(*(np.zeros((0, 2)) for _ in range(4)))
    interval = value_interval(Groups(np.zeros((0, 3))), none, step=4, lipschitz=0.1)
    assert interval.estimate.shape == (0,)
