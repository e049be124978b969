"""Selectors of completions with weights: the weighted loss is what they minimise."""

import math

import numpy as np
import pytest

from kaestat import Visits
from kaestat.smoothing.kernels import as_kernel
from kaestat.smoothing.selectors import SELECTORS, make_selector
from kaestat.smoothing.selectors.data_driven import DataDriven

DATA_DRIVEN = [name for name, selector in SELECTORS.items() if issubclass(selector, DataDriven)]
TRIANGULAR = as_kernel("triangular")
GRID = (1.5, 3.0, 6.0, 12.0, 25.0, 60.0, 600.0)


def rare_heavy(seed, *, n_prompts=64, n_visits=24, group_size=6):
    """Rewards and weights (P, T, G): success near .95, and a wrong answer weighs about sixty right ones."""
    rng = np.random.default_rng(seed)
    value = rng.beta(19, 1, (n_prompts, 1, 1)).clip(0.8, 0.995)
    reward = (rng.random((n_prompts, n_visits, group_size)) < value).astype(float)
    heavy = 60 * np.exp(0.3 * rng.standard_normal((n_prompts, 1, 1)))
    weight = np.where(reward > 0, 1.0, heavy) * np.exp(0.5 * rng.standard_normal(reward.shape))
    return reward, weight


def past(reward, weight):
    n_visits = reward.shape[1]
    lag = np.broadcast_to(np.arange(n_visits, 0, -1.0), reward.shape[:2])
    return Visits.of(lag, reward, weight)


def weighted_forward_loss(reward, weight, bandwidth):
    """Mean over prompts and visits with a past of sum W (Z - m)^2 / G, m the weighted kernel mean of the past."""
    n_prompts, n_visits, size = reward.shape
    losses = []
    for p in range(n_prompts):
        for i in range(1, n_visits):
            k = [TRIANGULAR.weight(np.array((i - v) / bandwidth), np) for v in range(i)]
            mass = math.fsum(k[v] * weight[p, v, g] for v in range(i) for g in range(size))
            carried = math.fsum(k[v] * weight[p, v, g] * reward[p, v, g] for v in range(i) for g in range(size))
            before = math.fsum(weight[p, i - 1] * reward[p, i - 1]) / math.fsum(weight[p, i - 1])
            mean = carried / mass if mass > 0 else before
            losses.append(math.fsum(weight[p, i] * (reward[p, i] - mean) ** 2) / size)
    return math.fsum(losses) / len(losses) / weight.mean()


@pytest.mark.parametrize("name", ["forward_cv", "loo_cv"])
def test_paths_differ_by_the_weighted_loss_of_single_completions(name):
    """What no bandwidth changes is taken off the path, so differences between bandwidths are compared."""
    reward, weight = (part[:6, :8] for part in rare_heavy(1))
    selection = make_selector(name, grid=GRID).select(past(reward, weight), kernel=TRIANGULAR, n_boot=0)
    expected = np.array([weighted_forward_loss(reward, weight, b) for b in GRID])
    risk = selection.path["risk"].to_numpy()
    np.testing.assert_allclose(risk - risk[0], expected - expected[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", DATA_DRIVEN)
@pytest.mark.parametrize("group_size", [1, 4])
def test_constant_weights_change_neither_path_nor_choice(name, group_size):
    reward, _ = rare_heavy(2, n_prompts=12, group_size=group_size)
    selector = make_selector(name)
    plain, weighted = (
        selector.select(past(reward, weight), kernel=TRIANGULAR, n_boot=0)
        for weight in (None, np.full_like(reward, 3.7))
    )
    assert weighted.bandwidth == pytest.approx(plain.bandwidth, rel=1e-9)
    np.testing.assert_allclose(weighted.path["risk"], plain.path["risk"], rtol=1e-7, atol=1e-10)
