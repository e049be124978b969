"""What a history says of prompts before they are sampled, and calls that only record."""

import math

import numpy as np
import pytest

from kaestat import AdvantageEstimator, Groups, Visits, make_baseline
from kaestat.baselines import Kae, Kalman
from kaestat.baselines.registry import METHODS
from kaestat.estimator.prediction import Population
from kaestat.history.history import RewardHistory

REWARDS_ALONE = [name for name, method in METHODS.items() if method.needs is None]
HISTORY = [name for name in REWARDS_ALONE if make_baseline(name).horizon > 0]
LINEAR = [
    Kae(bandwidth=6.0),
    Kae(kernel="exponential", bandwidth=3.0),
    make_baseline("kae_stream"),
    make_baseline("local_linear", bandwidth=8.0),
    make_baseline("local_polynomial", bandwidth=9.0, degree=2),
    make_baseline("sieve"),
]
IDS = [f"p{k}" for k in range(6)]


def run(estimator: AdvantageEstimator, steps: int = 12, seed: int = 0, **params) -> None:
    rng = np.random.default_rng(seed)
    for step in range(steps):
        here = [IDS[k] for k in np.flatnonzero(rng.random(len(IDS)) < 0.7)] or IDS[:1]
        ids = [key for key in here for _ in range(int(rng.integers(1, 5)))]
        estimator.step(ids, (rng.random(len(ids)) < 0.6).astype(float), step, **params)


def visits_of_prompts(rng: np.random.Generator) -> Visits:
    lag = np.tile([11.0, 7.0, 4.0, 3.0, 1.0], (4, 1))
    count = rng.integers(1, 5, lag.shape).astype(float)
    count[1, :2] = 0
    count[2, :4] = 0
    total = rng.binomial(count.astype(int), 0.5).astype(float)
    return Visits(lag=lag, count=count, total=total, total_sq=total)


def nobody(n_prompts: int) -> Groups:
    return Groups(np.zeros((n_prompts, 1)), mask=np.zeros((n_prompts, 1), dtype=bool))


@pytest.mark.parametrize("name", [n for n in HISTORY if not make_baseline(n).pools_prompts])
def test_a_prediction_is_the_value_of_a_completion_alone_in_its_group(name):
    estimator = AdvantageEstimator(name)
    run(estimator)
    prediction = estimator.predict(IDS, 12)
    estimator.step(IDS, [1.0, 0.0, 1.0, 0.0, 1.0, 0.0], 12)
    np.testing.assert_allclose(prediction.value, np.clip(estimator.values, 0, 1), rtol=1e-12)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (3.0, 5.0)])
@pytest.mark.parametrize("name", HISTORY)
def test_no_prediction_extrapolates_a_trend_beyond_the_rewards(name, low, high):
    try:
        estimator = AdvantageEstimator(name, low=low, high=high)
    except ValueError:
        estimator = AdvantageEstimator(name)
    ids = [*IDS] * 4
    for step in range(20):
        estimator.step(ids, low + (high - low) * (np.arange(24) < 4 + step), step)
    spread = np.sqrt(3) * (high - low)  # the deviation of a reward among four, at most
    some = (0, 1) if (low, high) == (0, 1) else (low - spread, high + spread)
    for gap in (0, 3, 50, 1000):
        value = estimator.predict(IDS, 20 + gap).value
        assert (value >= some[0]).all() and (value <= some[1]).all()


@pytest.mark.parametrize("name", HISTORY)
def test_a_prompt_never_seen_is_one_of_the_population_and_predicting_changes_nothing(name):
    estimator = AdvantageEstimator(name)
    nothing = estimator.predict(["a", "b"], 0)
    assert np.isfinite(nothing.value).all() and (nothing.standard_error == math.inf).all()
    run(estimator)
    before = estimator.state_dict()
    prediction = estimator.predict([*IDS, "new"], 15)
    population = prediction.population
    assert repr(estimator.state_dict()) == repr(before)
    assert np.isfinite(prediction.value).all() and np.isfinite(prediction.standard_error).all()
    assert (prediction.effective_completions[:-1] > 0).all() and prediction.effective_completions[-1] == 0
    assert prediction.lag[-1] == math.inf and (prediction.lag[:-1] >= 4).all()
    assert prediction.value[-1] == population.mean and prediction.standard_error[-1] == math.sqrt(population.spread)


@pytest.mark.parametrize("baseline", LINEAR, ids=repr)
def test_effective_completions_are_one_over_the_squared_weights(baseline):
    """The value is linear in the sum of each visit, so a unit more of it is the weight of a completion."""
    visits = visits_of_prompts(np.random.default_rng(3))
    groups = nobody(4)
    value = baseline.values(groups, visits, step=20)[:, 0]
    squares = np.zeros(4)
    for v in range(visits.lag.shape[1]):
        more = visits.total.copy()
        more[:, v] += visits.count[:, v] > 0
        changed = Visits(visits.lag, visits.count, more, visits.total_sq)
        squares += visits.count[:, v] * (baseline.values(groups, changed, step=20)[:, 0] - value) ** 2
    found = baseline.effective_completions(groups, visits, step=20)[:, 0]
    np.testing.assert_allclose(found, 1 / squares, rtol=1e-9)


def test_kalmans_effective_completions_are_those_of_its_predicted_variance():
    baseline = Kalman(drift_variance=0.01, initial_variance=0.2, reward_variance=0.1)
    visits = visits_of_prompts(np.random.default_rng(4))
    found = baseline.effective_completions(nobody(4), visits, step=20)[:, 0]
    for p in range(4):
        variance, last = 0.2, None
        for lag, n in zip(visits.lag[p], visits.count[p], strict=True):
            if n == 0:
                continue
            variance += 0.01 * (last - lag) if last is not None else 0.0
            variance = 1 / (1 / variance + n / 0.1)
            last = lag
        np.testing.assert_allclose(found[p], 0.1 / (variance + 0.01 * last))


def test_the_learned_filters_effective_completions_are_those_of_its_posterior():
    """One more success moves a posterior mean by its variance over the mean, whatever the distribution."""
    estimator = AdvantageEstimator("bayes_filter")
    run(estimator)
    baseline, carry = estimator.baseline, estimator.state.carry
    for name in IDS:  # each alone, so that nothing is learned of it from others
        visits = estimator.history.visits([name], 12)
        size = baseline.effective_completions(nobody(1), visits, step=12, carry=carry)[:, 0]
        value = baseline.serve(nobody(1), visits, step=12, carry=carry).values[:, 0]
        moved = baseline.serve(Groups(np.ones((1, 2))), visits, step=12, carry=carry).values[:, 0]
        np.testing.assert_allclose(moved - value, (1 - value) / (size + 1), rtol=5e-3)


def test_the_standard_error_is_that_of_so_many_completions():
    estimator = AdvantageEstimator("kae", bandwidth=math.inf)
    estimator.step(["a"] * 4 + ["b"] * 2, [1.0, 0, 0, 0, 1, 0], 0)
    estimator.step(["a"] * 4, [1.0, 1, 0, 0], 1)
    prediction = estimator.predict(["a"], 5)
    np.testing.assert_allclose(prediction.effective_completions, [8])
    variance = (8 * (3 / 8) * (5 / 8) + prediction.population.noise) / 9
    np.testing.assert_allclose(prediction.standard_error, [math.sqrt(variance / 8)])


@pytest.mark.parametrize("name", ["kae:bandwidth=10", "kae_eb"])
def test_a_weighted_history_predicts_plain_rewards(name):
    """With equal weights it is the prediction without; with unequal ones the value is still that of the reward."""
    rng, ids = np.random.default_rng(3), list(range(30))
    value = rng.random(30)
    plain, alike, heavy = (AdvantageEstimator(name) for _ in range(3))
    for step in range(12):
        rewards = (rng.random(30) < value).astype(float)
        plain.step(ids, rewards, step)
        alike.step(ids, rewards, step, weights=np.ones(30))
        heavy.step(ids, rewards, step, weights=10 - 9 * rewards)
    expected = plain.predict(ids, 12).value
    np.testing.assert_allclose(alike.predict(ids, 12).value, expected, rtol=1e-12)
    assert abs(heavy.predict(ids, 12).value.mean() - value.mean()) < 0.1 < value.mean() - heavy.values.mean()


@pytest.mark.parametrize(
    ("name", "ids", "step", "word"),
    [("rloo", ["a"], 4, "no history"), ("kae", ["a", "b", "b"], 4, "'b' comes twice"), ("kae", ["a"], 3, "last visit")],
)
def test_what_cannot_be_predicted_is_refused(name, ids, step, word):
    estimator = AdvantageEstimator(name)
    estimator.step(["a", "a", "b"], [1.0, 0.0, 1.0], 3)
    with pytest.raises(ValueError, match=word):
        estimator.predict(ids, step)


@pytest.mark.parametrize("name", REWARDS_ALONE)
def test_observing_leaves_the_state_of_a_step_and_nothing_else(name):
    stepped, observed = AdvantageEstimator(name), AdvantageEstimator(name)
    run(stepped, 6)
    run(observed, 6)
    values, record = observed.values, observed.record
    stepped.step(["p0", "p0", "p1"], [1.0, 0.0, 1.0], 6)
    assert observed.observe(["p0", "p0", "p1"], [1.0, 0.0, 1.0], 6) is None
    assert repr(stepped.state_dict()) == repr(observed.state_dict())
    assert observed.values is values and observed.record is record


def population(rewards: np.ndarray, steps: np.ndarray) -> Population:
    """Of rewards (V, P, G), all prompts visited at the given steps."""
    history = RewardHistory()
    for step, reward in zip(steps.tolist(), rewards, strict=True):
        sums = {"total": reward.sum(-1), "total_sq": (reward**2).sum(-1)}
        history.record(list(range(reward.shape[0])), step=step, count=np.full(reward.shape[0], reward.shape[1]), **sums)
    return Population.of(history)


def test_the_population_is_recovered_from_normal_values_that_walk():
    """Moments of 20,000 prompts: spread .3, noise .5, drift .02 a step; the bounds are five standard errors."""
    rng = np.random.default_rng(5)
    value = rng.normal(0.2, math.sqrt(0.3), 20_000)
    visits = []
    for _ in range(3):
        visits.append(value[:, None] + rng.normal(0, math.sqrt(0.5), (20_000, 4)))
        value = value + rng.normal(0, math.sqrt(0.02 * 10), 20_000)
    found = population(np.array(visits), np.array([0, 10, 20]))
    assert abs(found.noise - 0.5) < 5 * 0.5 * math.sqrt(2 / 60_000)
    assert abs(found.drift - 0.02) < 5 * 0.45 / 10 * math.sqrt(2 / 20_000)
    assert abs(found.spread - 0.7) < 5 * 0.83 * math.sqrt(2 / 20_000)  # of the values at the last visit
    assert abs(found.mean - 0.2) < 5 * math.sqrt(0.83 / 20_000)
    assert not found.binary


def test_with_one_completion_a_visit_the_noise_is_that_of_the_last_two_visits():
    rng = np.random.default_rng(6)
    value = rng.random(20_000)
    rewards = (rng.random((2, 20_000)) < value).astype(float)[..., None]
    found = population(rewards, np.array([0, 1]))
    assert abs(found.noise - 1 / 6) < 0.01 and abs(found.spread - 1 / 12) < 0.01
    assert found.drift == 0 and found.binary
