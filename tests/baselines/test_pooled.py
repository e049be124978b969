"""The paper's one-shot oracle: leave-one-out over all groups of the prompt at the step."""

import numpy as np

from kaestat import AdvantageEstimator
from tests.helpers.method_case import MethodCase
from tests.helpers.references import group_mean


def test_pooled_looks_across_groups_of_a_prompt_where_rloo_looks_within():
    prompts, streams, rewards = ["x"] * 4, [0, 0, 1, 1], [1.0, 0, 1, 1]
    pooled, rloo = AdvantageEstimator("pooled"), AdvantageEstimator("rloo")
    pooled.step(prompts, rewards, 0, stream_ids=streams)
    rloo.step(prompts, rewards, 0, stream_ids=streams)
    np.testing.assert_allclose(pooled.values, [2 / 3, 1.0, 2 / 3, 2 / 3])
    np.testing.assert_allclose(rloo.values, [0.0, 1.0, 1.0, 1.0])


CASES = [MethodCase("pooled", lambda case: group_mean(case, without_own=True), weighted=True)]
