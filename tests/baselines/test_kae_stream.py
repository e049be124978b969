"""The paper's one-shot variant (appendix, "Baseline construction in the one-shot experiment")."""

import numpy as np

from kaestat import AdvantageEstimator
from tests.helpers.method_case import MethodCase
from tests.helpers.references import KERNELS, other_prompts_mean, others, per_completion, weighted_mean


def test_each_copy_of_the_prompt_is_a_stream_of_its_own():
    estimator = AdvantageEstimator("kae_stream", bandwidth=10)
    estimator.step(["x"] * 4, [1.0, 1, 0, 0], 0, stream_ids=[0, 0, 1, 1])
    estimator.step(["x"] * 4, [1.0, 0, 1, 0], 1, stream_ids=[0, 0, 1, 1])
    # stream 0: past mean 1; (1.8*1 + 2*0) / 3.8 for the success, (1.8 + 2) / 3.8 for the failure
    # stream 1: past mean 0; (0 + 0) / 3.8, (0 + 2) / 3.8
    np.testing.assert_allclose(estimator.values, [1.8 / 3.8, 1.0, 0.0, 2 / 3.8], atol=1e-12)


def kae_stream(case, *, kernel="triangular", bandwidth=10.0, cold_start="batch_mean"):
    """The paper's one-shot variant: visits weigh alike, whatever their number of completions."""
    k = KERNELS[kernel]

    def value(p, g):
        numerator, mass = 0.0, 0.0
        for visit in case.past[p]:
            if sum(visit.weights) > 0:
                w = k((case.step - visit.step) / bandwidth)
                numerator, mass = numerator + w * weighted_mean(visit.rewards, visit.weights), mass + w
        if sum(others(case.weights[p], g)) > 0:
            current = weighted_mean(others(case.rewards[p], g), others(case.weights[p], g))
            numerator, mass = numerator + k(0) * current, mass + k(0)
        if mass > 0:
            return numerator / mass
        return other_prompts_mean(case, p) if cold_start == "batch_mean" else cold_start

    return per_completion(case, value)


CASES = [
    MethodCase("kae_stream", kae_stream, {"bandwidth": 7.0}, weighted=True),
    MethodCase("kae_stream", kae_stream, {"kernel": "exponential", "cold_start": 0.5}, weighted=True),
]
