"""One reward far outside the others: what prompts share is bounded, and a warning says so."""

import warnings

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.core.seen_rewards import ENOUGH, SeenRewards

PROMPTS, AT, STEPS = 64, 20, 36
POOLING = ["kae_eb", "kae_eb weighted", "kae_eb:bandwidth=20", "kae", "outside_value", "ebpo", "james_stein"]
ALONE = ["bayes_filter", "kalman", "kae:bandwidth=10", "kae_stream", "krpo", "pooled"]
OUTSIDE = dict.fromkeys(range(PROMPTS), 0.5)


def made(method):
    name = method.removesuffix(" weighted")
    params = {"outside": OUTSIDE} if name == "outside_value" else {}
    return AdvantageEstimator(name, **params), method != name


def rewards(size, far=None, seed=0):
    """Rewards of a run, (steps, prompts, size), and their means; the first of one step is far away."""
    rng = np.random.default_rng(seed)
    walks = rng.normal(0, 1.5, PROMPTS) + np.cumsum(rng.normal(0, 0.15, (STEPS, PROMPTS)), axis=0)
    means = 1 / (1 + np.exp(-walks))
    found = (rng.random((STEPS, PROMPTS, size)) < means[..., None]) * 1.0
    if far is not None:
        found[AT, 0, 0] = far
    return found, means


def errors(method, size, far, seed):
    """Mean squared error of the other prompts' values at each step after, and the warnings about far rewards."""
    estimator, weighted = made(method)
    (found, means), ids = rewards(size, far, seed), np.repeat(np.arange(PROMPTS), size)
    weights = np.random.default_rng(seed).random(len(ids)) + 0.5 if weighted else None
    error, texts = [], []
    for step, of_step in enumerate(found):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator.step(ids, of_step.ravel(), step, weights=weights)
        texts += [str(each.message) for each in caught if "lies far outside" in str(each.message)]
        error.append(np.mean((estimator.values.reshape(PROMPTS, size) - means[step][:, None])[1:] ** 2))
    return np.array(error[AT + 1 :]), texts


@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize("method", POOLING + ALONE)
def test_one_far_reward_leaves_the_values_of_others_nearly_as_they_were_and_is_warned_of_once(method, size):
    clean, spoiled = (errors(method, size, far, 0) for far in (None, 100))
    assert (spoiled[0] / clean[0]).max() < 1.3
    assert not clean[1] and len(spoiled[1]) == (method in POOLING)
    assert all("prompt 0" in text and "100" in text and "Clip" in text for text in spoiled[1])


@pytest.mark.parametrize("method", ["bayes_filter", "kalman", "spo"])
def test_rewards_in_a_small_part_of_the_range_of_a_method_are_noticed_once(method):
    for unit, said in ((0.1, 1), (1.0, 0)):
        estimator = AdvantageEstimator(method)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step, of_step in enumerate(rewards(2)[0][:5]):
                estimator.step(np.repeat(np.arange(PROMPTS), 2), unit * of_step.ravel(), step)
        assert ["high=" in str(each.message) for each in caught] == [True] * said


@pytest.mark.filterwarnings("ignore:.*lies far outside")
def test_the_far_reward_is_in_its_own_advantage_in_full_and_not_in_its_own_value():
    found = []
    for far in (0, 100):
        estimator, steps = AdvantageEstimator("kae_eb"), rewards(2, far)[0]
        ids = np.repeat(np.arange(PROMPTS), 2)
        advantages = [estimator.step(ids, of_step.ravel(), t) for t, of_step in enumerate(steps[: AT + 1])][-1]
        found.append(estimator.values)
    assert found[0][0] == found[1][0] and found[0][1] != found[1][1] and advantages[0] == 100 - found[1][0]


@pytest.mark.parametrize(("zero", "unit"), [(0.0, 1.0), (-7.0, 4.0)])
def test_a_reward_counts_as_at_most_one_range_beyond_those_before(zero, unit):
    few = SeenRewards().after(zero + unit * np.array([0.0, 1.0]))
    seen = few.after(zero + unit * (np.arange(ENOUGH) % 2))
    far = zero + unit * np.array([-100.0, -1.0, 0.5, 2.0, 100.0])
    assert few.bounded(far) is far and seen.bounded(far[1:4]).base is far
    np.testing.assert_allclose(seen.bounded(far), zero + unit * np.array([-1.0, -1.0, 0.5, 2.0, 2.0]))
    np.testing.assert_allclose(seen.after(far).ends, zero + unit * np.array([-4.0, 5.0]))
    alike = SeenRewards().after(np.full(ENOUGH, zero))
    assert alike.bounded(far) is far


@pytest.mark.parametrize("seen", [[2, 1.0, 0.0], [2, 0.0, float("nan")], [-1, 0.0, 1.0]])
def test_a_state_with_a_range_that_is_none_is_refused(seen):
    with pytest.raises(ValueError, match="state: "):
        SeenRewards.of_plain(seen)
