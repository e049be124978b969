"""Tables 1 and 2 on calibrated bandits: closed forms against enumeration, simulations against closed forms."""

import dataclasses
import itertools

import numpy as np
import pytest

from kaestat import Groups, Visits
from simulations.bandits.calibration import INPUTS, Population, calibrate
from simulations.bandits.gradient_diagnostic import GradientDiagnostic, gradient_errors
from simulations.bandits.value_diagnostic import METHODS, ValueDiagnostic
from simulations.harness import Streams
from simulations.studies import sensitivity, table1
from tests.helpers.statistical import Discrepancy, check_mean, generator

RATES = np.array([0.3, 0.9])  # a population of two equally likely success rates
SIGMA2, TAU2 = float(np.mean(RATES * (1 - RATES))), float(np.var(RATES))
TINY = ValueDiagnostic(n_oracle=2, n_estimation=2, group_size=2, prompts=2, past_steps=1, bandwidth=3.0)
SMALL = ValueDiagnostic(n_oracle=12, n_estimation=10, group_size=4, prompts=24, repeats=2, past_steps=2, bandwidth=4.0)
POPULATION = Population(SIGMA2, TAU2)


def enumerated(bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All outcomes of two prompts: rates (O, 2), rewards (O, 2, bits) and probabilities (O,)."""
    one = np.array(list(itertools.product((0, 1), repeat=bits + 1)))
    first, second = (index.ravel() for index in np.meshgrid(np.arange(len(one)), np.arange(len(one))))
    outcome = np.stack([one[first], one[second]], axis=1)
    rate, reward = RATES[outcome[..., 0]], outcome[..., 1:].astype(float)
    p = rate[..., None]
    return rate, reward, np.prod(np.where(reward == 1, p, 1 - p), axis=(1, 2)) / 4


def visits(total: np.ndarray) -> Visits:
    total = total[..., None]
    return Visits(lag=np.ones_like(total), count=np.full_like(total, 2.0), total=total, total_sq=total)


def simulated(diagnostic: ValueDiagnostic | GradientDiagnostic, estimators, replicates: int, prompts: int):
    streams = Streams(int(generator().integers(2**31)), "ab", range(replicates))
    return diagnostic.simulate(POPULATION.rates(streams, prompts), streams, estimators)


@pytest.fixture(scope="module")
def all_outcomes():
    """Every outcome of the diagnostic with G = N_oracle = 2, one past step and two prompts."""
    _, reward, probability = enumerated(6)
    return Groups(reward[..., :2]), visits(reward[..., 2:4].sum(-1)), reward[..., 4:].mean(-1), probability


def exact_mse(outcomes, estimator) -> float:
    groups, past, target, probability = outcomes
    error = (estimator.values(groups, past, step=1) - target[..., None]) ** 2
    return float(probability @ error.mean(axis=(1, 2)))


@pytest.mark.parametrize("method", METHODS)
def test_expected_value_mse_is_the_enumerated_one(method, all_outcomes):
    expected = TINY.expected_mse(TINY.weights()[method], SIGMA2, TAU2)
    assert exact_mse(all_outcomes, TINY.estimators[method]) == pytest.approx(expected, abs=1e-12)


def test_kae_variance_with_four_past_steps_and_bandwidth_ten_is_the_hand_computed_one():
    noise = ValueDiagnostic().weights()["kae"].noise(7, 8)
    assert noise == pytest.approx((7 + 8 * (0.9**2 + 0.8**2 + 0.7**2 + 0.6**2)) / (7 + 8 * 3.0) ** 2, abs=1e-15)


@pytest.fixture(scope="module")
def value_samples():
    return simulated(SMALL, SMALL.estimators, 1500, SMALL.prompts)


@pytest.mark.parametrize("method", METHODS)
def test_simulated_value_mse_has_its_expectation(method, value_samples):
    expected = SMALL.expected_mse(SMALL.weights()[method], SIGMA2, TAU2)
    check_mean(value_samples[f"{method}|mse"], target=expected, detect=SIGMA2 / SMALL.n_oracle)


@pytest.mark.parametrize("method", METHODS)
def test_debiased_mse_is_free_of_the_oracles_noise_and_the_raw_one_is_not(method, value_samples):
    oracle = SIGMA2 / SMALL.n_oracle
    true = SMALL.expected_mse(SMALL.weights()[method], SIGMA2, TAU2) - oracle
    check_mean(value_samples[f"{method}|mse_debiased"], target=true, detect=oracle)
    with pytest.raises(Discrepancy):
        check_mean(value_samples[f"{method}|mse"], target=true, detect=oracle)


def test_gradient_error_is_that_of_explicit_softmax_scores():
    rng = generator(1)
    actions, pool, group = 40, 7, 5
    for _ in range(20):
        action = rng.permutation(actions)[:pool]
        scores = np.eye(actions)[action] - 1 / actions
        right = int(rng.integers(pool + 1))
        reward = (np.arange(pool) < right).astype(float)
        drawn, advantage = rng.integers(pool, size=group), rng.normal(size=group)
        sampled = -(advantage[:, None] * scores[drawn]).mean(axis=0)
        reference = -((reward - reward.mean())[:, None] * scores).mean(axis=0)
        # The reference's coefficients sum to 0, so only the sampled ones enter the term in 1/K.
        lost = (advantage.sum() / group) ** 2 / actions
        found = gradient_errors(advantage, drawn, np.array(right), pool)
        assert np.sum((sampled - reference) ** 2) == pytest.approx(float(found) - lost, abs=1e-12)


@pytest.fixture(scope="module")
def all_draws():
    """Every outcome with pools of two at both steps, and two draws from each."""
    _, reward, probability = enumerated(4)
    draws = np.array(list(itertools.product((0, 1), repeat=8))).reshape(-1, 2, 4)  # (draws, prompts, 2 now + 2 then)
    outcome, draw = (index.ravel() for index in np.meshgrid(np.arange(len(reward)), np.arange(len(draws))))
    reward, drawn = reward[outcome], draws[draw]
    chosen = np.take_along_axis(reward[..., :2], drawn[..., :2], axis=-1)
    past = np.take_along_axis(reward[..., 2:], drawn[..., 2:], axis=-1).sum(-1)
    return reward[..., :2], drawn[..., :2], chosen, past, probability[outcome] / len(draws)


@pytest.mark.parametrize("method", METHODS)
def test_expected_gradient_mse_is_the_enumerated_one(method, all_draws):
    pool, drawn, chosen, past, probability = all_draws
    advantage = chosen - TINY.estimators[method].values(Groups(chosen), visits(past), step=1)
    coefficients = sum(advantage[..., [g]] * (drawn[..., [g]] == np.arange(2)) for g in range(2)) / 2
    reference = (pool - pool.mean(axis=-1, keepdims=True)) / 2
    enumerated_mse = float(probability @ ((coefficients - reference) ** 2).sum(-1).mean(-1))
    expected = GradientDiagnostic(TINY, n_reference=2).expected_mse(TINY.weights()[method], SIGMA2, TAU2)
    assert enumerated_mse == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_simulated_gradient_mse_has_its_expectation_and_not_that_of_an_endless_pool(method):
    diagnostic = GradientDiagnostic(SMALL, n_reference=6, repeats=2)
    samples = simulated(diagnostic, {method: SMALL.estimators[method]}, 800, SMALL.prompts)[f"{method}|gradient_mse"]
    weights = SMALL.weights()[method]
    expected = diagnostic.expected_mse(weights, SIGMA2, TAU2)
    endless = dataclasses.replace(diagnostic, n_reference=10**9).expected_mse(weights, SIGMA2, TAU2)
    detect = 0.5 * abs(expected - endless)
    check_mean(samples, target=expected, detect=detect)
    with pytest.raises(Discrepancy):
        check_mean(samples, target=endless, detect=detect)


@pytest.mark.parametrize("cell", INPUTS, ids=str)
def test_calibrated_population_gives_the_inputs_back(cell):
    diagnostic = ValueDiagnostic()
    population = calibrate(*INPUTS[cell], diagnostic)
    expected = {
        name: diagnostic.expected_mse(weights, population.reward_variance, population.value_variance)
        for name, weights in diagnostic.weights().items()
    }
    assert (expected["reinforce++"], expected["grpo"]) == pytest.approx(INPUTS[cell], abs=1e-12)


@pytest.mark.parametrize("cell", INPUTS, ids=str)
def test_population_is_the_beta_distribution_with_the_solved_variances(cell):
    population = calibrate(*INPUTS[cell], ValueDiagnostic())
    a, b = population.shape
    assert a / (a + b) == pytest.approx(population.mean, abs=1e-12)
    assert a * b / ((a + b) ** 2 * (a + b + 1)) == pytest.approx(population.value_variance, abs=1e-12)
    assert a * b / ((a + b) * (a + b + 1)) == pytest.approx(population.reward_variance, abs=1e-12)
    assert population.mean > 0.5


def test_sensitivity_at_the_papers_setting_is_table_1():
    cell = sensitivity.STUDY.cells[0]
    streams = Streams(0, "ef", range(2))
    found = sensitivity.simulate(cell, streams)
    assert set(METHODS[1:]) <= {name.partition("|")[0] for name in found}
    at_ten = found[f"{sensitivity.method('triangular', 10)}|mse"]
    np.testing.assert_array_equal(at_ten, table1.simulate(cell, streams)["kae|mse"])
