"""Training against a slow loop, and runs that do not mix."""

import numpy as np
import pytest

from simulations.baseline_law.designs import DESIGNS
from simulations.baseline_law.training import Budget, Draws, curves, path
from simulations.baseline_law.world import World, WorldSpec
from simulations.harness import Streams

SPEC = WorldSpec(answers=5, right=2, habit=1.0, centre=0.0, spread=1.0, rule=0.5, prompts=16, rows=3, columns=3)
BUDGET = Budget(8, 6)
SINGLE = [name for name, design in DESIGNS.items() if design.group_size == 1]


@pytest.fixture
def world():
    return World.of(SPEC, [np.random.default_rng(seed) for seed in (0, 1)])


@pytest.fixture
def draws():
    return Draws.of(Streams(0, "test", range(4)), [0, 0, 1, 1], SPEC.prompts, BUDGET)


def slow(world, draws, run, rate, group_size):
    """SGD with no baseline or the leave-one-out mean, one completion at a time."""
    base, theta = draws.bases[run], np.zeros((3, 3))
    found = []

    def policy(x):
        logits = world.base[base, x] + world.v[base, x] @ (world.u[base, x] @ theta)
        weight = np.exp(logits - logits.max())
        return weight / weight.sum()

    def accuracy():
        return np.mean([policy(x) @ world.right[base, x] for x in range(SPEC.prompts)])

    found.append(accuracy())
    each = BUDGET.batch // group_size
    for step in range(BUDGET.steps):
        gradient = np.zeros((3, 3))
        for place in range(each):
            x = draws.order[run, step * each + place]
            p = policy(x)
            uniform = draws.uniform[run, step, place * group_size : (place + 1) * group_size]
            answers = [int(np.searchsorted(np.cumsum(p), number)) for number in uniform]
            rewards = world.right[base, x][answers]
            for a, reward in zip(answers, rewards, strict=True):
                baseline = (rewards.sum() - reward) / (group_size - 1) if group_size > 1 else 0.0
                score = np.outer(world.u[base, x], world.v[base, x, a] - p @ world.v[base, x])
                gradient += (reward - baseline) * score / BUDGET.batch
        theta = theta + rate * gradient
        found.append(accuracy())
    return np.array(found)


@pytest.mark.parametrize("name", ["none", "rloo_4"])
def test_training_is_that_of_a_slow_loop(world, draws, name):
    rates = np.tile([0.5, 2.0], (4, 1))
    found = curves(world, draws, [name, name], rates, "sgd", BUDGET)
    for run in range(4):
        for arm in range(2):
            expected = slow(world, draws, run, rates[run, arm], DESIGNS[name].group_size)
            np.testing.assert_allclose(found[run, arm], expected, rtol=1e-10)


@pytest.mark.parametrize("optimiser", ["sgd", "adamw", "muon"])
def test_runs_and_arms_do_not_mix(world, draws, optimiser):
    rates = np.linspace(0.05, 0.2, 4 * len(SINGLE)).reshape(4, -1)
    together = curves(world, draws, SINGLE, rates, optimiser, BUDGET)
    assert np.isfinite(together).all()
    for arm, name in enumerate(SINGLE):
        alone = curves(world, draws.part(slice(2, 3)), [name], rates[2:3, arm : arm + 1], optimiser, BUDGET)
        np.testing.assert_allclose(alone[0, 0], together[2, arm], rtol=1e-8)


def test_a_path_is_the_training_of_its_design(world, draws):
    moments = path(world, draws, "value", 0.1, "adamw", BUDGET, [0, BUDGET.steps])
    curve = curves(world, draws, ["value"], np.full((4, 1), 0.1), "adamw", BUDGET)
    last = world.rows(draws.bases).values(moments[-1].theta).mean(axis=1)
    np.testing.assert_allclose(last, curve[..., -1])
    assert not moments[0].theta.any()


def test_every_pass_has_every_prompt_once(draws):
    for order in draws.order:
        for start in range(0, BUDGET.completions, SPEC.prompts):
            assert sorted(order[start : start + SPEC.prompts]) == list(range(SPEC.prompts))


def test_arms_of_two_group_sizes_are_refused(world, draws):
    with pytest.raises(ValueError, match="one group size"):
        curves(world, draws, ["none", "rloo_2"], np.ones((4, 2)), "sgd", BUDGET)
    with pytest.raises(ValueError, match="'none' is apart"):
        curves(world, draws, ["none", "batch_mean", "none"], np.ones((4, 3)), "sgd", BUDGET)
