"""Theorem 1: the exact error of Algorithm 1 against enumeration, and the explicit bounds against the exact error."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaestat import Groups, Visits
from kaestat.baselines import Kae
from kaestat.theory import algorithm1_error, theorem1_bound

PATH = np.array([0.9, 0.2, 0.7, 0.4, 0.6, 0.3])  # V_0..V_5; the last is the current value


@pytest.mark.parametrize("kernel", ["triangular", "uniform", "epanechnikov"])
@pytest.mark.parametrize("visits", [0, 2, 5])
def test_algorithm_1_has_the_error_of_all_visit_sets_and_all_rewards_enumerated(visits, kernel):
    group_size, h, steps = 2, 0.7, len(PATH) - 1
    baseline = Kae(bandwidth=h * steps, kernel=kernel, normalization="algorithm1")
    values, weights = [], []
    for visited in itertools.combinations(range(steps), visits):
        reward = np.array(list(itertools.product((0.0, 1.0), repeat=2 * visits + 1)))
        p = np.append(np.repeat(PATH[list(visited)], group_size), PATH[-1])
        total = reward[:, :-1].reshape(len(reward), 1, visits, group_size).sum(axis=-1)
        lag = np.broadcast_to(steps - np.array(visited, dtype=float), total.shape)
        past = Visits(lag=lag, count=np.full_like(total, group_size), total=total, total_sq=total)
        current = np.stack([np.zeros(len(reward)), reward[:, -1]], axis=-1)[:, None]
        values.append(baseline.values(Groups(current), past, step=steps)[:, 0, 0])
        weights.append(np.prod(np.where(reward == 1, p, 1 - p), axis=1))
    value, weight = np.concatenate(values), np.concatenate(weights) / len(weights)
    mean = weight @ value
    error = algorithm1_error(PATH, visits=visits, group_size=group_size, h=h, kernel=kernel)
    assert error.bias == pytest.approx(mean - PATH[-1], abs=1e-12)
    assert error.variance == pytest.approx(weight @ (value - mean) ** 2, abs=1e-12)


def test_the_error_broadcasts_over_paths():
    paths = np.stack([PATH, PATH[::-1]])
    both = algorithm1_error(paths, visits=3, group_size=2, h=0.5)
    for k in (0, 1):
        one = algorithm1_error(paths[k], visits=3, group_size=2, h=0.5)
        assert both.bias[k] == pytest.approx(float(one.bias)) and both.variance[k] == pytest.approx(float(one.variance))


designs = st.fixed_dictionaries(
    {
        "step": st.integers(5, 300),
        "share": st.floats(0.05, 1),
        "group_size": st.integers(1, 9),
        "h": st.floats(0.02, 0.9),
        "drift": st.floats(0, 0.5),
        "kernel": st.sampled_from(["triangular", "uniform", "epanechnikov"]),
        "seed": st.integers(0, 10_000),
        "direction": st.sampled_from([-1, 1, 0]),
    }
)


@given(design=designs)
@settings(max_examples=300)
def test_no_path_that_drifts_as_the_theorem_asks_exceeds_its_bounds(design):
    step, h, drift = design["step"], design["h"], design["drift"]
    visits = max(1, round(design["share"] * step))
    rng = np.random.default_rng(design["seed"])
    t = np.maximum(np.arange(step + 1), 1)
    change = drift * np.log(t[1:] / t[:-1])
    walk = np.append(0.0, np.cumsum(change * (design["direction"] or rng.choice([-1, 1], size=step))))
    path = np.clip(walk - walk[-1] + rng.uniform(0, 1), 0, 1)  # clipping keeps the drift within bounds
    exact = algorithm1_error(path, visits=visits, group_size=design["group_size"], h=h, kernel=design["kernel"])
    bound = theorem1_bound(
        step=step, visits=visits, group_size=design["group_size"], h=h, drift=drift, kernel=design["kernel"]
    )
    assert abs(exact.bias) <= bound.bias
    assert exact.variance <= bound.variance
    assert exact.mse <= bound.mse == bound.bias**2 + bound.variance


def test_the_parts_of_the_bounds_are_tight_up_to_small_factors():
    step, h, drift = 100_000, 0.01, 0.5
    path = 0.05 + drift * np.log(step / np.maximum(np.arange(step + 1), 1)) * (np.arange(step + 1) > 0.9 * step)
    arguments = {"visits": step, "group_size": 1, "h": h}
    of_drift = theorem1_bound(step=step, drift=drift, value_bound=0.0, **arguments).bias
    of_sums = theorem1_bound(step=step, drift=0.0, **arguments).bias
    drifting = algorithm1_error(path, **arguments).bias - algorithm1_error(np.full(step + 1, 0.05), **arguments).bias
    assert 0.9 * of_drift < drifting < of_drift
    # The Riemann sum: without drift the weights of Algorithm 1 lack K(0) / (2 i h), half of the bound.
    flat = algorithm1_error(np.ones(step + 1), **arguments).bias
    assert flat == pytest.approx(-of_sums / 2, rel=1e-3)


def test_without_any_noise_of_rewards_algorithm_1_still_varies_with_the_times_of_the_visits():
    """Its weights sum to one on average only: a variance of order 1 / (n h), however many completions a visit has."""
    arguments = {"visits": 100, "h": 0.2}
    variance = [float(algorithm1_error(np.ones(401), group_size=g, **arguments).variance) for g in (1, 8)]
    # Sampling n of i steps without replacement: (1 - n / i) (R / h - 1) / n.
    assert variance[0] == pytest.approx((1 - 100 / 400) * (4 / 3 / 0.2 - 1) / 100, rel=0.03)
    assert variance[1] > 0.6 * variance[0]
    bound = theorem1_bound(step=400, group_size=8, drift=0.0, noise_variance=0.0, **arguments)
    without_g = bound.variance / 8  # the paper's proof, constants and all
    assert variance[1] > without_g


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: algorithm1_error(PATH, visits=9, group_size=1, h=0.1), "visits=9"),
        (lambda: theorem1_bound(step=9, visits=1, group_size=1, h=1.0, drift=0.1), "h must lie in"),
        (lambda: theorem1_bound(step=9, visits=10, group_size=1, h=0.5, drift=0.1), "visits"),
        (lambda: theorem1_bound(step=9, visits=1, group_size=1, h=0.5, drift=0.1, kernel="exponential"), "support"),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
