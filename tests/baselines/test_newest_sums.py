"""Running sums from the newest visit on give the kernel sums of each bandwidth, wherever padding stands."""

import numpy as np
import pytest

from kaestat import Groups, Visits, make_baseline
from kaestat.baselines.newest_sums import NewestSums
from kaestat.smoothing.kernels import Triangular

BANDWIDTHS = np.array([0.5, 1.0, 7.0, 40.0, 41.5, 5000.0, np.inf])


def made(shape=(3, 130, 20), seed=0, rewards=lambda rng, shape: rng.integers(0, 9, shape)):
    """Visits oldest first, a fifth of them padding anywhere, and rewards."""
    rng = np.random.default_rng(seed)
    lag = np.sort(rng.integers(1, 60, shape), axis=-1)[..., ::-1].astype(float)
    here = rng.random(shape) < 0.8
    total = np.where(here, rewards(rng, shape), 0.0).astype(float)
    visits = Visits(lag=lag, count=np.where(here, rng.integers(1, 9, shape), 0.0), total=total, total_sq=total**2)
    return Groups((rng.random((*shape[:-1], 4)) < 0.5).astype(float)), visits


def test_sums_are_those_over_all_visits():
    _, visits = made()
    found = NewestSums(visits, BANDWIDTHS.reshape(-1, 1, 1, 1))
    for k, bandwidth in enumerate(BANDWIDTHS):
        lag, n, total, total_sq = visits.lag, visits.count, visits.total, visits.total_sq
        w = Triangular().weight(lag / bandwidth, np)
        terms = {
            "mass": w * n,
            "carried": w * total,
            "carried_sq": w * total_sq,
            "count_sq": w**2 * n,
            "mass_lag": w * n * lag,
            "mass_lag_sq": w * n * lag**2,
            "carried_lag": w * total * lag,
            "visits": (w > 0) & (n > 0),
        }
        for name, term in terms.items():
            expected = term.sum(axis=-1, keepdims=True)
            np.testing.assert_allclose(getattr(found, name)[k], expected, atol=1e-12 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize("method", ["kae", "kae_eb", "local_linear"])
def test_values_and_what_is_learned_are_the_same(method, monkeypatch):
    baseline = make_baseline(method, bandwidth="auto")
    groups, visits = made((130, 20))
    assert NewestSums.pays(groups, visits)

    def run():
        carry, values = baseline.initial_carry(), []
        for k in range(3):
            served = baseline.serve(groups, visits, step=60 + k, carry=carry)
            carry, values = served.carry, [*values, served.values]
        return np.stack(np.broadcast_arrays(*values)), carry

    found, learned = run()
    monkeypatch.setattr(NewestSums, "pays", staticmethod(lambda *_: False))
    expected, carry = run()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
    for name, array in carry.items():
        np.testing.assert_allclose(learned[name], array, rtol=1e-9)


def test_shared_lags_weights_and_single_precision_are_summed_as_they_were():
    groups, visits = made((130, 20))
    columns = {"count": visits.count, "total": visits.total, "total_sq": visits.total_sq}
    assert not NewestSums.pays(groups, Visits(visits.lag[:1], **columns))
    assert not NewestSums.pays(Groups(groups.reward, weight=groups.reward), visits)
    assert not NewestSums.pays(groups, Visits(visits.lag.astype(np.float32), **columns))
    assert not NewestSums.pays(*made((130, 5)))


@pytest.mark.parametrize(("unit", "zero"), [(0.7, 0.1), (10.0, 0.0), (-1.1, 1.3)])
def test_rewards_that_are_all_alike_have_no_noise_where_a_bandwidth_ends_at_the_newest_visits(unit, zero):
    """Rounding of sums that nearly cancel was noise and drift to `kae_eb`: values were off by three times the range."""
    lag = np.tile(np.arange(60.0, 40.0, -1.0), (130, 1))
    own = np.random.default_rng(0).random((21, 4)) < 0.5

    def values(unit, zero):
        reward = np.ones((130, 21, 4))
        reward[0] = own
        reward = zero + unit * reward
        total, total_sq = reward[:, 1:].sum(axis=-1), (reward[:, 1:] ** 2).sum(axis=-1)
        visits = Visits(lag=lag, count=np.full(lag.shape, 4.0), total=total, total_sq=total_sq)
        ends = (41 + np.geomspace(1e-3, 3, 40)).reshape(-1, 1, 1, 1)
        past = Visits(lag[None], visits.count[None], total[None], total_sq[None], sums=NewestSums(visits, ends))
        found = make_baseline("kae_eb").values_at(Groups(reward[None, :, 0]), past, ends, 99)
        return (found[:, 0, 0] - zero) / unit

    np.testing.assert_allclose(values(unit, zero), values(1.0, 0.0), atol=1e-9)
