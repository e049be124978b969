"""The paper's one-shot oracle: leave-one-out over all groups of the prompt at the step."""

import numpy as np

from kaestat import AdvantageEstimator, make_baseline
from tests.helpers.cases import NO_PAST, groups
from tests.helpers.method_case import MethodCase
from tests.helpers.references import group_mean


def test_pooled_averages_over_the_prompts_other_completions():
    # [1, 0, 1, 1]: the three others average 2/3 for a success and 1 for the failure
    values = make_baseline("pooled").values(groups([1, 0, 1, 1]), NO_PAST, step=0)
    np.testing.assert_allclose(values, [[2 / 3, 1.0, 2 / 3, 2 / 3]])


def test_pooled_looks_across_groups_of_a_prompt_where_rloo_looks_within():
    prompts, streams, rewards = ["x"] * 4, [0, 0, 1, 1], [1.0, 0, 1, 1]
    pooled, rloo = AdvantageEstimator("pooled"), AdvantageEstimator("rloo")
    pooled.step(prompts, rewards, 0, stream_ids=streams)
    rloo.step(prompts, rewards, 0, stream_ids=streams)
    np.testing.assert_allclose(pooled.values, [2 / 3, 1.0, 2 / 3, 2 / 3])
    np.testing.assert_allclose(rloo.values, [0.0, 1.0, 1.0, 1.0])


def test_a_prompt_with_one_completion_has_value_zero():
    assert make_baseline("pooled").values(groups([1]), NO_PAST, step=0).tolist() == [[0.0]]


CASES = [
    MethodCase("pooled", lambda case: group_mean(case, without_own=True), weighted=True),
]
