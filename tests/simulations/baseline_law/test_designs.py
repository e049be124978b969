"""Designs against kaestat's baselines, and against their formulas written out for one prompt at a time."""

import numpy as np
import pytest

from kaestat import Groups, Visits, make_baseline
from kaestat.baselines import BatchMean, GroupMean
from kaestat.estimator.scaling import divide_by_group_std
from kaestat.smoothing.kernels import Exponential
from simulations.baseline_law.designs import DESIGNS, History, Pooled, Step, state_of

RUNS, PROMPTS, ARMS = 2, 6, 3
ALL = 12  # prompts of the world


def step(number=0, size=1, seed=0, prompts=None, weighted=True):
    rng = np.random.default_rng([seed, number])
    shape = (RUNS, PROMPTS, size, ARMS)
    if prompts is None:
        prompts = np.stack([rng.permutation(ALL)[:PROMPTS] for _ in range(RUNS)])
    weight = rng.exponential(size=shape) if weighted else np.ones(shape)
    return Step(number, prompts, (rng.random(shape) < 0.4).astype(float), weight)


def as_groups(given: Step) -> Groups:
    """Arms beside runs, as kaestat has it: (S, K, P, G)."""
    reward, weight = (np.moveaxis(part, -1, 1) for part in (given.reward, given.weight))
    return Groups(reward, weight=weight)


def back(advantages):
    return np.moveaxis(advantages, 1, -1)


def advantages(name, given):
    return state_of(DESIGNS[name], (RUNS, ALL, ARMS), 2.0, float).advantages(given)


@pytest.mark.parametrize("name", ["batch_mean", "weighted_batch_mean"])
def test_batch_means_are_kaestats(name):
    given = step(weighted=DESIGNS[name].weighted)
    groups = as_groups(given)
    value = BatchMean(without_own=True).values(groups, Visits.empty(groups), step=0)
    np.testing.assert_allclose(advantages(name, given), back(groups.reward - value), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["rloo_2", "rloo_4", "grpo_2", "grpo_4"])
def test_group_designs_are_kaestats(name):
    given = step(size=DESIGNS[name].group_size, weighted=False)
    groups = Groups(np.moveaxis(given.reward, -1, 1))
    value = GroupMean(without_own=name.startswith("rloo")).values(groups, Visits.empty(groups), step=0)
    expected = groups.reward - value
    if name.startswith("grpo"):
        expected = divide_by_group_std(expected, groups)
    np.testing.assert_allclose(advantages(name, given), back(expected), rtol=1e-9, atol=1e-12)


def test_no_baseline_in_both_codings():
    given = step()
    np.testing.assert_array_equal(advantages("none", given), given.reward)
    np.testing.assert_array_equal(advantages("none_signed", given), 2 * given.reward - 1)


def past_of(steps, prompt, run, arm, last):
    """Lags, rewards and weights of a prompt's visits before step ``last``."""
    found = []
    for given in steps:
        for row in np.flatnonzero(given.prompts[run] == prompt):
            found.append((last - given.number, given.reward[run, row, 0, arm], given.weight[run, row, 0, arm]))
    return np.array(found).reshape(-1, 3)


def test_history_without_shrinkage_is_kaestats_kernel_mean():
    """With kappa 0: KAE with an exponential kernel, whose bandwidth is the span, and weights."""
    span, state = 5.0, History((RUNS, ALL, ARMS), 5.0, float)
    steps = [step(number) for number in range(8)]
    for given in steps:
        state.record(given)
    kernel = make_baseline("kae", kernel=Exponential(rho=np.exp(-1.0)), bandwidth=span)
    compared = 0
    for run, arm, prompt in np.ndindex(RUNS, ARMS, ALL):
        lag, reward, weight = past_of(steps, prompt, run, arm, 8).T
        if not len(lag):
            continue
        visits = Visits.of(lag[None], reward[None, :, None], weight[None, :, None])
        groups = Groups(np.zeros((1, 1)), weight=np.ones((1, 1)))
        expected = kernel.values(groups, visits, step=8)[0, 0]
        assert state.carried[run, prompt, arm] / state.mass[run, prompt, arm] == pytest.approx(expected, rel=1e-9)
        compared += 1
    assert compared > 50


def test_history_shrinks_by_the_moments_of_its_docstring():
    span, state = 5.0, History((RUNS, ALL, ARMS), 5.0, float)
    steps = [step(number) for number in range(9)]
    for given in steps[:-1]:
        state.record(given)
    last = steps[-1]
    found = last.reward - state.advantages(last)
    for run, arm in np.ndindex(RUNS, ARMS):
        m, x, q = np.zeros(ALL), np.zeros(ALL), np.zeros(ALL)
        parts = [past_of(steps[:-1], prompt, run, arm, 8) for prompt in range(ALL)]
        for prompt, (lag, reward, weight) in enumerate(part.T for part in parts):
            k = np.exp(-lag / span)
            m[prompt], x[prompt] = (k * weight).sum(), (k * weight * reward).sum()
        b0 = x.sum() / m.sum()
        for prompt, (lag, reward, weight) in enumerate(part.T for part in parts):
            q[prompt] = ((np.exp(-lag / span) * weight * (reward - b0)) ** 2).sum()
        tau2 = max(((x - b0 * m) ** 2).sum() - q.sum(), 0) / (m**2).sum()
        for row, prompt in enumerate(last.prompts[run]):
            kappa = q.sum() / m.sum() / tau2 if tau2 > 0 else np.inf
            expected = b0 if np.isinf(kappa) else (x[prompt] + kappa * b0) / (m[prompt] + kappa)
            assert found[run, row, 0, arm] == pytest.approx(expected, rel=1e-9)


def test_history_is_about_as_good_as_kaestats_own():
    """Squared errors of values that differ between prompts, beside KAE-EB, which shrinks by other moments."""
    rng, n, visits = np.random.default_rng(0), 200, 12
    value = rng.beta(1.0, 1.0, n)
    order = np.arange(n)[None]
    state = History((1, n, 1), 8.0, float)
    rewards = (rng.random((visits, n)) < value).astype(float)
    for number, row in enumerate(rewards):
        given = Step(number, order, row[None, :, None, None], np.ones((1, n, 1, 1)))
        own = row - state.advantages(given)[0, :, 0, 0]
        last = own
        state.record(given)
    baseline = make_baseline("kae_eb", kernel=Exponential(rho=np.exp(-1.0)), bandwidth=8.0)
    past = Visits.of(np.arange(visits - 1, 0, -1.0), rewards[:-1].T[..., None])
    theirs = baseline.values(Groups(rewards[-1][:, None]), past, step=visits - 1)[:, 0]
    ours, other, level = (((each - value) ** 2).mean() for each in (last, theirs, value.mean()))
    assert ours < 1.1 * other
    assert ours < 0.5 * level


def test_history_falls_back_to_the_batch_before_it_knows_anything():
    given = step()
    np.testing.assert_allclose(advantages("weighted_history", given), advantages("weighted_batch_mean", given))


def test_the_constant_pools_past_and_others():
    span, state = 3.0, Pooled((RUNS, ARMS), 3.0, float)
    steps = [step(number) for number in range(4)]
    for given in steps[:-1]:
        state.record(given)
    found = steps[-1].reward - state.advantages(steps[-1])
    for run, arm in np.ndindex(RUNS, ARMS):
        mass = carried = 0.0
        for given in steps[:-1]:
            k = np.exp(-(3 - given.number) / span)
            weight, reward = given.weight[run, :, 0, arm], given.reward[run, :, 0, arm]
            mass, carried = mass + k * weight.sum(), carried + k * (weight * reward).sum()
        weight, reward = steps[-1].weight[run, :, 0, arm], steps[-1].reward[run, :, 0, arm]
        for row in range(PROMPTS):
            others = np.arange(PROMPTS) != row
            expected = (carried + (weight * reward)[others].sum()) / (mass + weight[others].sum())
            assert found[run, row, 0, arm] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "name", [name for name, design in DESIGNS.items() if design.kind not in ("grpo", "value", "best")]
)
def test_no_baseline_knows_its_own_reward(name):
    design = DESIGNS[name]
    state = state_of(design, (RUNS, ALL, ARMS), 2.0, float)
    for number in range(3):
        state.record(step(number, size=design.group_size))
    given = step(3, size=design.group_size)
    before = given.reward * (1 + design.signed) - state.advantages(given)
    turned = given.reward.copy()
    turned[:, 2, 0] = 1 - turned[:, 2, 0]
    changed = Step(3, given.prompts, turned, given.weight)
    after = turned * (1 + design.signed) - state.advantages(changed)
    np.testing.assert_allclose(after[:, 2, 0], before[:, 2, 0], atol=1e-12)
