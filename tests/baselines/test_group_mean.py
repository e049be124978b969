"""GRPO, Dr. GRPO, GPG and RLOO (design, section 4), and lone completions of every method that needs groups."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator, make_baseline
from tests.helpers.cases import NO_PAST, groups
from tests.helpers.method_case import MethodCase
from tests.helpers.references import group_mean


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "gpg", "maxrl", "bnpo", "grpo_passk", "opo", "rloo"])
def test_a_lone_completion_has_advantage_zero_with_and_the_raw_reward_without_its_own_sample(name):
    estimator = AdvantageEstimator(name)
    extra = {"weights": [7.0]} if estimator.baseline.needs_weights else {}
    assert estimator.step(["a"], [1.0], 0, **extra).tolist() == [1.0 if name == "rloo" else 0.0]


def test_grpo_divides_by_the_groups_std_with_ddof_1_and_eps_1e_6():
    # mean 1/4, squares 9/16 + 3/16 = 3/4, std = sqrt(3/4 / 3) = 1/2
    advantages = AdvantageEstimator("grpo").step(["a"] * 4, [1.0, 0, 0, 0], 0)
    np.testing.assert_allclose(advantages, np.array([0.75, -0.25, -0.25, -0.25]) / 0.500001, rtol=1e-12)


def test_dr_grpo_leaves_out_the_std():
    np.testing.assert_allclose(AdvantageEstimator("dr_grpo").step(["a"] * 4, [1.0, 0, 0, 0], 0), [0.75, *[-0.25] * 3])


def test_gpg_rescales_by_completions_over_those_in_mixed_groups():
    # groups [1, 0], [1, 1]: B = 4, M = 2, factor 2 (counting non-zero rewards instead would give 4/3)
    advantages = AdvantageEstimator("gpg").step(["a", "a", "b", "b"], [1.0, 0, 1, 1], 0)
    np.testing.assert_allclose(advantages, [2 * 0.5, 2 * -0.5, 0, 0])


def test_a_group_of_no_weight_has_value_and_own_weight_zero():
    weightless = groups([1, 1], [1, 0], weights=[[0.0, 0.0], [1.0, 1.0]])
    for of, expected in ((make_baseline("grpo").values, 0.5), (make_baseline("grpo").own_derivative, 0.5)):
        np.testing.assert_array_equal(of(weightless, NO_PAST, step=0), [[0, 0], [expected, expected]])


def test_pooled_looks_across_groups_of_a_prompt_where_rloo_looks_within():
    prompts, streams, rewards = ["x"] * 4, [0, 0, 1, 1], [1.0, 0, 1, 1]
    pooled, rloo = AdvantageEstimator("pooled"), AdvantageEstimator("rloo")
    pooled.step(prompts, rewards, 0, stream_ids=streams)
    rloo.step(prompts, rewards, 0, stream_ids=streams)
    np.testing.assert_allclose(pooled.values, [2 / 3, 1.0, 2 / 3, 2 / 3])
    np.testing.assert_allclose(rloo.values, [0.0, 1.0, 1.0, 1.0])


CASES = [
    MethodCase("grpo", lambda case: group_mean(case, without_own=False), weighted=True),
    MethodCase("rloo", lambda case: group_mean(case, without_own=True), weighted=True),
    MethodCase("pooled", lambda case: group_mean(case, without_own=True), weighted=True),
]
