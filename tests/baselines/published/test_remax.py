"""ReMax (Li et al., 2023): greedy rewards that change from step to step, and who gives them."""

from kaestat import AdvantageEstimator
from tests.helpers.method_case import TRUTH, MethodCase
from tests.helpers.references import per_completion


def test_a_mapping_is_looked_up_at_every_step():
    greedy = {"a": 1.0}
    estimator = AdvantageEstimator("remax", greedy=greedy)
    assert estimator.step(["a", "a"], [1.0, 0.0], 0).tolist() == [0.0, -1.0]
    greedy["a"] = 0.0
    assert estimator.step(["a", "a"], [1.0, 0.0], 1).tolist() == [1.0, 0.0]


def remax(case, *, greedy):
    return per_completion(case, lambda p, g: greedy[case.prompts[p]])


CASES = [MethodCase("remax", remax, {"greedy": TRUTH})]
