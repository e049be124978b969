"""The study of sampling with feedback: its closed forms against slow references, and what it claims at a small size."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from kaestat.sampling import systematic
from simulations.bandits.softmax import rule_bandit
from simulations.harness import Cell, Streams
from simulations.studies import sampling
from tests.helpers.statistical import check_mean, generator

SEED = int(generator().integers(2**31))


def simulated(cell: Cell, replicates: int):
    return sampling.simulate(cell, Streams(SEED, sampling.STUDY.seed_key(cell), range(replicates)))


def test_what_uncorrected_sampling_maximises_is_the_integral_of_the_deviation():
    whole = quad(lambda p: np.sqrt(p * (1 - p)), 0, 1)[0]
    for value in (0.0, 0.1, 0.5, 0.83, 1.0):
        part = quad(lambda p: np.sqrt(p * (1 - p)), 0, value)[0]
        assert sampling.uncorrected_objective(np.array(value)) == pytest.approx(part / whole, abs=1e-9)


def test_the_noise_of_a_completion_is_that_of_sampled_ones():
    bandit = rule_bandit(4, 5, 3, exceptions=0.5, spread=1.0, rng=np.random.default_rng(1))
    theta, value = np.array([0.3, -0.2, 0.5]), np.array([0.1, 0.5, 0.6, 0.9])
    prompts = np.repeat(np.arange(4), 20_000)
    reward, score = sampling.completions(bandit, theta, prompts, np.random.default_rng(SEED))
    drawn = ((reward - value[prompts]) ** 2 * (score**2).sum(axis=1)).reshape(4, -1)
    for prompt, exact in enumerate(sampling.completion_noise(bandit, theta, value)):
        check_mean(drawn[prompt], target=exact, detect=0.2 * exact)


def test_the_formula_is_the_variance_of_independent_floors_and_ceilings():
    """Sums of n terms of mean g and second moment m, n the floor or the ceiling of nu, one prompt at a time."""
    expected, noise, gradient = np.array([0.4, 1.0, 2.3]), np.array([0.5, 0.3, 0.8]), np.array([0.2, -0.1, 0.4])
    exact = sampling.formula(expected, noise=noise, gradient2=gradient**2)
    slow = 0.0
    for nu, m, g in zip(expected, noise, gradient, strict=True):
        for n, chance in ((np.floor(nu), 1 - nu % 1), (np.floor(nu) + 1, nu % 1)):
            slow += chance * (n * (m - g**2) + (n * g) ** 2) / nu**2
        slow -= g**2
    assert exact == pytest.approx(slow / 9)


def test_numbers_drawn_have_the_moments_of_the_formula():
    expected = np.array([0.4, 1.0, 2.3, 0.3])
    rng = np.random.default_rng(SEED)
    drawn = np.array([systematic(expected, rng) for _ in range(20_000)])
    whole = np.floor(expected)
    for k, exact in enumerate(whole * (whole - 1 + 2 * (expected - whole))):
        pairs = (drawn[:, k] * (drawn[:, k] - 1)).astype(float)
        if pairs.std() > 0:
            check_mean(pairs, target=exact, detect=0.2)
        else:
            assert pairs[0] == exact


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["neyman", "near_half"])
def test_the_corrected_gradient_is_unbiased_and_the_uncorrected_is_not(policy):
    """Within six standard errors over twelve states (Student's t: one false alarm in 10,000); the other is far off."""
    cell = Cell({"design": "bias", "policy": policy})
    found = {estimate.measure: estimate for estimate in sampling.summarise(cell, simulated(cell, 12))}
    for measure in ("along", "squared_bias"):
        assert abs(found[measure].estimate) < 6 * found[measure].mcse
    plain = found["squared_bias_uncorrected"]
    assert plain.estimate > 2 * plain.mcse and plain.estimate > 4 * found["squared_bias"].estimate


@pytest.mark.slow
def test_where_prompts_conflict_each_objective_is_largest_at_its_own_optimum():
    found = simulated(Cell({"design": "limit"}), 3)
    assert (found["value|value"] > found["uncorrected|value"]).all()
    assert (found["uncorrected|mastered"] < found["value|mastered"]).all()
    assert (found["value|mastered"] < found["start|mastered"]).all()


@pytest.mark.slow
def test_training_with_feedback_learns_and_keeps_to_the_floor():
    found = simulated(Cell({"design": "learning", "way": "neyman"}), 2)
    assert (found[f"objective_{sampling.STEPS}"] > found["objective_0"] + 0.1).all()
    assert (found["least"] >= 0.1 - 1e-12).all() and (found["least"] < 0.9).all()
