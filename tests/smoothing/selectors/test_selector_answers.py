"""Selectors where the best bandwidth is known."""

import numpy as np
import pytest

from kaestat import Visits
from kaestat.smoothing.kernels import as_kernel
from kaestat.smoothing.selectors import SELECTORS, make_selector
from kaestat.smoothing.selectors.data_driven import DataDriven
from tests.helpers.statistical import generator

LEARNED = [name for name, kind in SELECTORS.items() if issubclass(kind, DataDriven) and name != "auto"]
KERNELS = ["triangular", "exponential"]
WEIGHTS = {"triangular": lambda u: np.clip(2 - 2 * u, 0, None), "exponential": lambda u: np.exp(-u)}


def sampled(value, size, salt):
    """Visits at every step with ``size`` Bernoulli completions of these values, shape (P, V)."""
    total = generator(salt).binomial(size, value).astype(float)
    lag = np.broadcast_to(np.arange(value.shape[1], 0, -1.0), value.shape)
    return Visits(lag=lag, count=np.full(value.shape, float(size)), total=total, total_sq=total)


def random_walks(prompts, visits, sd, salt):
    """Values that walk within [0.05, 0.95], reflected at the ends; shape (P, V)."""
    rng = generator(salt)
    walk = rng.uniform(0, 0.9, (prompts, 1)) + np.cumsum(rng.normal(scale=sd, size=(prompts, visits)), axis=1)
    return 0.05 + np.abs((walk + 0.9) % 1.8 - 0.9)


def value_mse(value, visits, kernel, bandwidth):
    """True mean squared error of the kernel mean of the past and the rest of the current group, from the formulas."""
    n = visits.count[0, 0]
    step = np.arange(value.shape[1])
    lag = step[:, None] - step[None, :]
    weight = np.where(lag >= 0, WEIGHTS[kernel](np.maximum(lag, 0) / bandwidth), 0.0) * np.where(lag == 0, n - 1, n)
    weight = weight[1:] / weight[1:].sum(axis=1, keepdims=True)
    effective = np.where(lag[1:] == 0, max(n - 1, 1), n)
    bias = value @ weight.T - value[:, 1:]
    variance = (value * (1 - value)) @ (weight**2 / effective).T
    return np.mean(bias**2 + variance)


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", LEARNED)
def test_static_values_ask_for_a_bandwidth_near_the_span(name, kernel, size):
    value = np.broadcast_to(generator(1).uniform(0.2, 0.8, (300, 1)), (300, 40))
    visits = sampled(value, size, salt=2)
    selection = make_selector(name).select(visits, kernel=as_kernel(kernel), n_boot=0)
    grid = selection.path["bandwidth"].to_numpy()
    assert selection.bandwidth >= grid[-1] / 2
    risk, best, worst = (value_mse(value, visits, kernel, b) for b in (selection.bandwidth, grid[-1], grid[0]))
    assert risk < 1.25 * best < worst / 2


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


@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize("name", LEARNED)
def test_fast_drift_asks_for_a_small_bandwidth(name, size):
    step = np.arange(60)
    value = 0.5 + 0.45 * np.sin(2 * np.pi * step / 24 + generator(3).uniform(0, 6, (200, 1)))
    selection = make_selector(name).select(sampled(value, size, salt=4), kernel=as_kernel("triangular"), n_boot=0)
    assert selection.bandwidth < (8 if size == 1 else 5)


@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", LEARNED)
def test_on_random_walks_the_chosen_bandwidth_is_nearly_the_best(name, kernel, size):
    value = random_walks(200, 100, sd={1: 0.1, 2: 0.07, 8: 0.03}[size], salt=5)
    visits = sampled(value, size, salt=6)
    selection = make_selector(name).select(visits, kernel=as_kernel(kernel), n_boot=0)
    risk = [value_mse(value, visits, kernel, b) for b in selection.path["bandwidth"]]
    assert min(risk[0], risk[-1]) > 1.25 * min(risk), "the ends must be bad, or nothing is tested"
    assert value_mse(value, visits, kernel, selection.bandwidth) < 1.12 * min(risk)


def test_a_past_that_contains_present_rewards_would_be_noticed():
    """Negative control: every reward also counts at the visit before its own, and so predicts itself."""
    value = random_walks(200, 100, sd=0.06, salt=5)
    visits = sampled(value, 2, salt=6)
    leaked = visits.total + np.roll(visits.total, -1, axis=1)
    leaked = Visits(lag=visits.lag, count=2 * visits.count, total=leaked, total_sq=leaked)
    chosen = make_selector("forward_cv").select(leaked, kernel=as_kernel("triangular"), n_boot=0)
    risk = [value_mse(value, visits, "triangular", b) for b in chosen.path["bandwidth"]]
    assert value_mse(value, visits, "triangular", chosen.bandwidth) > 1.12 * min(risk)
