"""Reference rates with a shift that all prompts share: its likelihood and its corners."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit, logit

from kaestat import AdvantageEstimator, Groups, Prior, Visits, make_baseline
from tests.helpers.cases import NO_PAST, groups, visits
from tests.helpers.method_case import MethodCase
from tests.helpers.references import other_prompts_mean, per_completion


def drawn(seed, n_prompts=40, group=2, reference=8, shift=0.7):
    """Reference successes and rewards of now; values of the reference policy and of now."""
    rng = np.random.default_rng(seed)
    before = rng.normal(-0.5, 1.5, n_prompts)
    successes = rng.binomial(reference, expit(before))
    value = expit(before + shift)
    return successes, (rng.random((n_prompts, group)) < value[:, None]).astype(float), value


@pytest.mark.parametrize("seed", range(4))
def test_the_shift_is_where_the_likelihood_of_the_other_prompts_is_largest(seed):
    successes, reward, _ = drawn(seed)
    past = Visits.of(np.array([3]), np.repeat(successes[:, None, None] / 8, 8, axis=2))
    values = make_baseline("logit_shift").values(Groups(reward), past, step=5)
    rate = (successes + 0.5) / 9
    for p in range(len(rate)):
        beside = np.arange(len(rate)) != p
        excess = lambda s: float(reward[beside].sum() - 2 * expit(logit(rate[beside]) + s).sum())  # noqa: B023, E731
        found = logit(values[p, 0]) - logit(rate[p])
        assert found == pytest.approx(brentq(excess, -8, 8), abs=2e-3)  # sums are interpolated every 0.1


def test_prompts_without_a_reference_have_the_mean_of_the_others_and_move_no_shift():
    past = visits([(3, [1, 0, 0])], [(3, [1, 1, 0])], [])
    for reward in (0.0, 1.0):
        values = make_baseline("logit_shift").values(groups([0], [1], [reward]), past, step=5)
        if reward == 0.0:
            first = values[:2]
        assert values[2, 0] == 0.5
    np.testing.assert_array_equal(values[:2], first)
    assert make_baseline("logit_shift").values(groups([1, 0], [1]), NO_PAST, step=0).tolist() == [[1.0] * 2, [0.5] * 2]


def test_shifts_stop_at_eight():
    past = visits(*[[(3, [1, 0])]] * 50)
    values = make_baseline("logit_shift").values(groups(*[[1]] * 50), past, step=5)
    np.testing.assert_allclose(values, expit(8.0), rtol=1e-12)


def test_a_prior_is_the_reference():
    successes, reward, value = drawn(0)
    prompts = list(range(len(value)))
    prior = Prior.of_rates(prompts, successes / 8, np.full(len(value), 8))
    estimator = AdvantageEstimator("logit_shift", prior=prior)
    estimator.step(prompts, reward[:, 0], 0)
    past = Visits.of(np.array([1]), np.repeat(successes[:, None, None] / 8, 8, axis=2))
    expected = make_baseline("logit_shift").values(Groups(reward[:, :1]), past, step=0)
    np.testing.assert_allclose(estimator.values, expected[:, 0], rtol=1e-9)


@pytest.mark.parametrize("bad", [-1.0, 1.5])
def test_rewards_outside_the_range_are_refused_and_nothing_is_recorded(bad):
    estimator = AdvantageEstimator("logit_shift")
    with pytest.raises(ValueError, match=r"rewards: logit_shift moves success rates, so every reward must lie in \[0"):
        estimator.step(["a", "a"], [bad, 1.0], 0)
    assert estimator.last_step == -1


def test_it_counts_as_many_completions_as_its_oldest_visit_has():
    past = visits([(9, [1, 0, 0]), (2, [1])], [])
    packed = groups([1], [1])
    assert make_baseline("logit_shift").effective_completions(packed, past, step=10).tolist() == [[3.0], [0.0]]
    assert make_baseline("logit_shift").effective_completions(packed, Visits.empty(packed), step=0).tolist() == [
        [0.0],
        [0.0],
    ]


def logit_shift(case):
    """The oldest visit's rate, its logit moved by what the oldest visits of the other prompts say."""

    def logit(k):
        rewards = case.past[k][0].rewards
        return math.log((sum(rewards) + 0.5) / (len(rewards) - sum(rewards) + 0.5))

    def expit(x):
        return 1 / (1 + math.exp(-x))

    def shift(beside):
        if not beside:
            return 0.0
        found = -8.0
        for k in range(160):
            here, next_ = (
                sum(sum(case.rewards[j]) - len(case.rewards[j]) * expit(logit(j) + s) for j in beside)
                for s in (-8 + 0.1 * k, -8 + 0.1 * (k + 1))
            )
            found += 0.1 * min(max(here / (here - next_), 0.0), 1.0)
        return found

    def value(p, g):
        if not case.past[p]:
            return other_prompts_mean(case, p)
        return expit(logit(p) + shift([j for j in range(len(case.past)) if j != p and case.past[j]]))

    return per_completion(case, value)


CASES = [MethodCase("logit_shift", logit_shift)]
