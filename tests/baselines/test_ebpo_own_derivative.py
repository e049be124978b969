"""EBPO's own weight: the change of a value with its own reward, through mean, mu, sigma^2 and tau^2 alike."""

from __future__ import annotations

import numpy as np
import pytest

from kaestat.baselines import Ebpo
from kaestat.core.arrays import Groups, Visits
from tests.helpers.statistical import Discrepancy, check_mean, generator


def flipped(reward, carry=None):
    """The difference quotient by flipping each reward in turn and valuing the whole step again."""
    quotient = np.zeros_like(reward)
    plain = Ebpo().values(Groups(reward), Visits.empty(Groups(reward)), step=1, carry=carry)
    for where in np.ndindex(*reward.shape):
        other = reward.copy()
        other[where] = 1 - other[where]
        value = Ebpo().values(Groups(other), Visits.empty(Groups(other)), step=1, carry=carry)[where]
        quotient[where] = (value - plain[where]) / (other[where] - reward[where])
    return quotient


@pytest.mark.parametrize("later", [False, True])
def test_it_is_the_difference_quotient_of_flipping_the_reward(later):
    rng, carry = np.random.default_rng(0), None
    if later:
        earlier = Groups((rng.random((5, 4)) < 0.6).astype(float))
        carry = Ebpo().advance(None, earlier, Visits.empty(earlier), step=0)
    reward = (rng.random((6, 4)) < 0.5).astype(float)
    groups = Groups(reward)
    own = Ebpo().own_derivative(groups, Visits.empty(groups), step=1, carry=carry)
    mixed = np.ptp(reward, axis=1) > 0  # where all rewards are alike it is multiplied by a variance of 0
    assert mixed.sum() >= 4
    np.testing.assert_allclose(own[mixed], flipped(reward, carry)[mixed], rtol=1e-9)


def test_masked_completions_have_none_and_change_nothing():
    reward, mask = np.array([[1.0, 0.0, 9.0], [0.0, 1.0, 1.0]]), np.array([[True, True, False], [True, True, True]])
    groups = Groups(reward, mask=mask)
    own = Ebpo().own_derivative(groups, Visits.empty(groups), step=0)
    other = Groups(np.where(mask, reward, -5.0), mask=mask)
    np.testing.assert_array_equal(own, Ebpo().own_derivative(other, Visits.empty(other), step=0))
    assert own[0, 2] == 0 and (own[mask] > 0).all()


def test_the_risk_with_few_prompts_is_off_by_little_and_with_shrinkage_taken_as_given_by_much():
    """Eight prompts, two completions each: within 2 % of the true squared error; the derivative at given S is not."""
    rng, runs = generator(51), 40_000
    value = np.clip(rng.beta(0.8, 0.8, size=(runs, 8, 1)), 0.02, 0.98)
    groups = Groups((rng.random((runs, 8, 2)) < value).astype(float))
    none = Visits.empty(groups)
    baseline = Ebpo()
    assigned = baseline.values(groups, none, step=0)
    variance = groups.reward.var(axis=-1, ddof=1, keepdims=True)
    true = ((assigned - value) ** 2).mean(axis=(1, 2))

    def excess(own):
        estimated = ((groups.reward - assigned) ** 2 - variance + 2 * own * variance).mean(axis=(1, 2))
        return (estimated - true) / true.mean()

    check_mean(excess(baseline.own_derivative(groups, none, step=0)), target=0.0, detect=0.04)
    seen = baseline.advance(None, groups, none, step=0)
    given = baseline._shrinkage(groups, seen)
    with pytest.raises(Discrepancy):
        check_mean(excess((1 - given) / 2 + given / 16), target=0.0, detect=0.04)
