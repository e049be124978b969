"""Noise at an equal budget: closed forms against gradients drawn outright from a bandit with shared parameters."""

from __future__ import annotations

import numpy as np
import pytest

from kaestat.theory import (
    allocated_gradient_noise,
    gradient_noise,
    independent_counts,
    optimal_group_size,
    oracle_gradient_mse,
    within_noise,
)
from simulations.bandits.softmax import SoftmaxBandit
from tests.helpers.statistical import Discrepancy, check_mean, generator

PROMPTS, ACTIONS, DIMENSION = 6, 3, 4
BUDGET, DRAWS = 16, 40_000
THETA = np.array([0.6, -0.4, 0.9, 0.2])
BASELINES = ("none", "value", "best", "leave-one-out")
SETTINGS = [(name, size) for size in (1, 2, 4, 8, 16) for name in BASELINES if size > 1 or name != "leave-one-out"]


class Lab:
    """A bandit's exact moments, and its gradients drawn."""

    def __init__(self):
        rng = np.random.default_rng(16)
        self.bandit = SoftmaxBandit(
            rng.normal(size=(PROMPTS, ACTIONS, DIMENSION)), rng.uniform(0.0, 1.0, size=(PROMPTS, ACTIONS))
        )
        self.policy, self.scores = self.bandit.policy(THETA), self.bandit.scores(THETA)
        self.gradients = self.bandit.prompt_gradients(THETA)
        self.products = self.gradients @ self.gradients.T
        self.squared_norm = np.diagonal(self.products)
        self.total = self.products.mean()
        self.between = self.squared_norm.mean() - self.total
        self.value, weight = self.bandit.values(THETA), self.policy * (self.scores**2).sum(axis=-1)
        self.weight = weight.sum(axis=-1)
        self.constant = {
            "none": np.zeros(PROMPTS),
            "value": self.value,
            "best": self.bandit.best_baselines(THETA),
        }
        self._weight = weight

    def second_moment(self, name: str, size: int) -> np.ndarray:
        """``E[W (R - b)^2]`` of each prompt."""
        if name == "leave-one-out":
            spread = self.value * (1 - self.value)
            return self.second_moment("value", size) + self.weight * spread / (size - 1)
        b, success = self.constant[name][:, None], self.bandit.success
        return (self._weight * (success * (1 - b) ** 2 + (1 - success) * b**2)).sum(axis=-1)

    def within(self, name: str, size: int) -> float:
        derivative = 1 / (size - 1) if name == "leave-one-out" else 0.0
        return within_noise(
            self.second_moment(name, size), self.squared_norm, group_size=size, own_derivative=derivative
        )

    def terms(self, rng: np.random.Generator, prompts: np.ndarray, name: str, size: int) -> np.ndarray:
        """``mean_j (R_j - b_j) s_j`` of groups of these prompts, shape (..., d)."""
        action = (rng.random((*prompts.shape, size, 1)) > np.cumsum(self.policy, axis=-1)[prompts][..., None, :-1]).sum(
            axis=-1
        )
        row = prompts[..., None]
        reward = (rng.random(action.shape) < self.bandit.success[row, action]).astype(float)
        if name == "leave-one-out":
            baseline = (reward.sum(axis=-1, keepdims=True) - reward) / (size - 1)
        else:
            baseline = self.constant[name][row]
        return ((reward - baseline)[..., None] * self.scores[row, action]).mean(axis=-2)

    def errors(self, rng: np.random.Generator, name: str, size: int, *, draws: int = DRAWS) -> np.ndarray:
        """``||ghat - g||^2`` of independent steps."""
        prompts = rng.integers(PROMPTS, size=(draws, BUDGET // size))
        estimate = self.terms(rng, prompts, name, size).mean(axis=1)
        return ((estimate - self.gradients.mean(axis=0)) ** 2).sum(axis=-1)


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab()


@pytest.mark.parametrize(("name", "size"), SETTINGS)
def test_the_noise_is_that_of_gradients_drawn_outright(lab, name, size):
    found = lab.errors(generator(1600 + size), name, size)
    noise = float(gradient_noise(lab.within(name, size), lab.between, budget=BUDGET, group_size=size))
    check_mean(found, target=noise, detect=0.08 * noise)


@pytest.mark.parametrize("size", [1, 4, 16])
def test_without_the_part_between_prompts_the_noise_is_found_wrong(lab, size):
    """Negative control."""
    found = lab.errors(generator(1600 + size), "value", size)
    with pytest.raises(Discrepancy):
        check_mean(found, target=lab.within("value", size) / BUDGET, detect=size * lab.between / BUDGET)


def test_completions_that_share_a_group_s_mean_are_correlated(lab, size=2):
    """Negative control: the covariance ``(G - 1) a^2 ||g_x||^2`` left out."""
    found = lab.errors(generator(1610), "leave-one-out", size, draws=150_000)
    left_out = within_noise(lab.second_moment("leave-one-out", size), lab.squared_norm, group_size=size)
    missing = lab.squared_norm.mean() / (size - 1) / BUDGET
    assert lab.within("leave-one-out", size) - left_out == pytest.approx(missing * BUDGET)
    target = float(gradient_noise(left_out, lab.between, budget=BUDGET, group_size=size))
    with pytest.raises(Discrepancy):
        check_mean(found, target=target, detect=missing)


def test_prompts_drawn_without_replacement_differ_less(lab):
    """As many prompts as there are leave nothing between them; `oracle_gradient_mse` says the same."""
    spread = lab.second_moment("value", 1) / lab.weight
    for batch, size in ((2, 8), (4, 4)):
        expected = oracle_gradient_mse(spread, lab.weight, lab.gradients, batch=batch, group_size=size)
        found = gradient_noise(
            lab.within("value", size), lab.between, budget=batch * size, group_size=size, prompts=PROMPTS
        )
        assert float(found) == pytest.approx(expected, rel=1e-12)
    whole = gradient_noise(1.0, 5.0, budget=12, group_size=2, prompts=6)
    assert float(whole) == pytest.approx(1 / 12)


# --- unequal allocations


def unequal(lab):
    probability = np.arange(1.0, PROMPTS + 1) / np.sum(np.arange(1.0, PROMPTS + 1))
    allocation = BUDGET * np.sqrt(probability) / np.sqrt(probability).sum()
    return probability, allocation


@pytest.mark.parametrize("size", [1, 4])
def test_an_allocation_drawn_at_random_has_the_noise_of_gradients_drawn_outright(lab, size):
    rng = generator(1620 + size)
    probability, allocation = unequal(lab)
    prompts = rng.choice(PROMPTS, p=allocation / BUDGET, size=(DRAWS, BUDGET // size))
    factor = (probability / allocation)[prompts] * size
    estimate = (factor[..., None] * lab.terms(rng, prompts, "value", size)).sum(axis=1)
    found = ((estimate - probability @ lab.gradients) ** 2).sum(axis=-1)
    within = lab.second_moment("value", size) - lab.squared_norm
    counts = independent_counts(allocation, group_size=size)
    noise = allocated_gradient_noise(within, lab.products, allocation, counts, probability=probability)
    check_mean(found, target=noise, detect=0.08 * noise)
    with pytest.raises(Discrepancy):  # negative control: as if the counts were fixed
        still = allocated_gradient_noise(within, lab.products, allocation, 0 * counts, probability=probability)
        check_mean(found, target=still, detect=noise - still)


def test_completions_taken_by_systematic_sampling_have_the_noise_of_gradients_drawn_outright(lab):
    """One completion or none, by one uniform number for all prompts; covariances by enumeration."""
    rng = generator(1630)
    probability, allocation = np.full(PROMPTS, 1 / PROMPTS), np.array([0.2, 0.9, 0.5, 0.7, 0.3, 0.4])
    edges = np.concatenate([[0.0], np.cumsum(allocation)])

    def counts(start):
        return np.diff(np.floor(edges - start[..., None]), axis=-1)

    grid = (np.arange(100_000) + 0.5) / 100_000
    covariance = np.cov(counts(grid).T, ddof=0)
    taken = counts(rng.random(2 * DRAWS))
    assert set(np.unique(taken)) == {0.0, 1.0} and (taken.sum(axis=1) == 3).all()
    terms = lab.terms(rng, np.broadcast_to(np.arange(PROMPTS), (2 * DRAWS, PROMPTS)), "value", 1)
    estimate = np.einsum("rp,rpd->rd", taken * probability / allocation, terms)
    found = ((estimate - probability @ lab.gradients) ** 2).sum(axis=-1)
    within = lab.second_moment("value", 1) - lab.squared_norm
    noise = allocated_gradient_noise(within, lab.products, allocation, covariance)
    check_mean(found, target=noise, detect=0.08 * noise)
    # Without joint inclusions: sum pi^2 m / nu less a constant.
    alone = allocated_gradient_noise(within, lab.products, allocation, np.diag(allocation * (1 - allocation)))
    moment = lab.second_moment("value", 1)
    assert alone == pytest.approx(np.sum(probability**2 * (moment / allocation - lab.squared_norm)))


def test_equal_allocations_give_the_noise_of_the_design(lab):
    allocation = np.full(PROMPTS, BUDGET / PROMPTS)
    for size in (1, 4):
        within = lab.second_moment("none", size) - lab.squared_norm
        counts = independent_counts(allocation, group_size=size)
        found = allocated_gradient_noise(within, lab.products, allocation, counts)
        assert found == pytest.approx(
            float(gradient_noise(within.mean(), lab.between, budget=BUDGET, group_size=size)), rel=1e-12
        )


# --- the best group


@pytest.mark.parametrize("estimation", [0.0, 0.3, 40.0])
@pytest.mark.parametrize("prompt_cost", [0.0, 2.5, 700.0])
@pytest.mark.parametrize("between", [0.002, 0.4])
def test_the_best_group_is_the_best_of_all_sizes(estimation, prompt_cost, between):
    size = np.arange(2.0 if estimation else 1.0, 5000.0)
    extra = estimation / (size * (size - 1)) if estimation else 0.0
    noise = (prompt_cost + 1.5 * size) * (0.8 / size + extra + between)
    found = optimal_group_size(0.8, between, estimation=estimation, prompt_cost=prompt_cost, completion_cost=1.5)
    assert found == size[noise.argmin()]


def test_arguments_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="between and completion_cost must be positive"):
        optimal_group_size(1.0, 0.0)
    with pytest.raises(ValueError, match="within must not be negative"):
        optimal_group_size(-1.0, 1.0)
    with pytest.raises(ValueError, match="group_size"):
        gradient_noise(1.0, 1.0, budget=4, group_size=8)
    with pytest.raises(ValueError, match="needs more prompts than the 3"):
        gradient_noise(1.0, 1.0, budget=8, group_size=2, prompts=3)
    with pytest.raises(ValueError, match="positive expected counts"):
        allocated_gradient_noise(1.0, np.eye(2), [1.0, 0.0], np.eye(2))
    with pytest.raises(ValueError, match=r"products must have shape \(2, 2\)"):
        allocated_gradient_noise(1.0, np.eye(3), [1.0, 1.0], np.eye(2))
    with pytest.raises(ValueError, match="not all of them 0"):
        independent_counts([0.0, 0.0])
    with pytest.raises(ValueError, match="shapes do not fit"):
        within_noise([1.0, 2.0], [1.0, 2.0, 3.0], group_size=1)
