"""EBPO's own weight: the change of a value with its own reward, through mean, mu, sigma^2 and tau^2 alike."""

import numpy as np
import pytest

from kaestat.baselines import Ebpo
from kaestat.core.arrays import Groups, Visits


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
