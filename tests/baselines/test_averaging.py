"""What baselines say of the weights that they take, and of what they keep apart."""

import pytest

from kaestat import make_baseline, methods
from tests.helpers.method_table import METHODS as CASES


def test_baselines_whose_references_take_weights_and_no_others_say_that_they_do():
    by_reference = {case.name for case in CASES if case.weighted}
    assert {case.name for case in CASES if make_baseline(case.name).takes_weights} == by_reference


def test_only_opo_does_not_do_without_weights():
    assert [name for name in methods() if make_baseline(name).needs_weights] == ["opo"]


def test_baselines_of_groups_see_streams_apart_and_those_of_prompts_do_not():
    by_group = "grpo dr_grpo gpg opo mc_grpo maxrl bnpo rloo james_stein ebpo krpo kae_stream".split()
    by_prompt = "none reinforce++ pooled kae kae_eb kalman spo local_linear sieve bayes_filter oracle".split()
    assert {make_baseline(name).unit for name in by_group} == {"group"}
    assert {make_baseline(name).unit for name in by_prompt} == {"prompt"}


@pytest.mark.parametrize("name", methods())
def test_baselines_that_stream_or_look_prompts_up_are_served_step_by_step(name):
    baseline = make_baseline(name)
    learned = baseline.initial_carry() is not None and baseline.in_order_only  # not the scores of bandwidths
    assert baseline.stepwise == (learned or baseline.missing_input is not None)
