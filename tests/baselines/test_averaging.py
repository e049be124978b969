"""Baselines that average take completions with weights, and a weight counts like that many completions."""

import pytest

from kaestat import make_baseline, methods
from tests.helpers.cases import NO_PAST, groups

AVERAGING = (
    "none reinforce++ grpo dr_grpo gpg opo maxrl bnpo rloo pooled james_stein "
    "kae kae_eb kae_stream local_linear local_polynomial sieve"
).split()


@pytest.mark.parametrize("name", AVERAGING)
def test_a_completion_of_weight_two_is_two_completions(name):
    baseline = make_baseline(name)
    weighted = baseline.values(groups([1, 0, 1], weights=[[1, 2, 1]]), NO_PAST, step=0)
    doubled = baseline.values(groups([1, 0, 0, 1], weights=[[1, 1, 1, 1]]), NO_PAST, step=0)
    assert weighted[0, 0] == pytest.approx(doubled[0, 0], rel=1e-12)


def test_the_averaging_baselines_and_no_others_say_that_they_take_weights():
    assert {name for name in methods() if make_baseline(name).takes_weights} == set(AVERAGING)


def test_only_opo_does_not_do_without_weights():
    assert [name for name in methods() if make_baseline(name).needs_weights] == ["opo"]


def test_baselines_of_groups_see_streams_apart_and_those_of_prompts_do_not():
    by_group = "grpo dr_grpo gpg opo mc_grpo qae maxrl bnpo grpo_passk rloo james_stein ebpo krpo kae_stream".split()
    assert {name for name in methods() if make_baseline(name).unit == "group"} == set(by_group)


def test_baselines_with_a_carry_or_prompts_to_look_up_are_served_step_by_step():
    assert {name for name in methods() if make_baseline(name).stepwise} == {
        "ebpo",
        "critic",
        "oracle",
        "remax",
        "outside_value",
        "cluster_blend",
        "bayes_filter",
    }
