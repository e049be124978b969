"""REINFORCE: the value is 0 and the advantage the reward."""

import numpy as np

from kaestat import AdvantageEstimator
from tests.helpers.method_case import MethodCase
from tests.helpers.references import per_completion


def test_the_advantage_is_the_reward():
    np.testing.assert_array_equal(AdvantageEstimator("none").step(["a", "a", "b"], [1.0, 0.25, 0.0], 0), [1, 0.25, 0])


def zero(case):
    return per_completion(case, lambda p, g: 0.0)


CASES = [MethodCase("none", zero, weighted=True)]
