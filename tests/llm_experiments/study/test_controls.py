"""A plan without the control that could take its claim away is refused."""

import pytest

from llm_experiments.study.controls import check_controls, required_controls
from llm_experiments.training.stacked.config import Design

FULL = {
    "recommended": Design(method="kae_eb", weights="adam"),
    "weighted": Design(method="reinforce++", scale="none", weights="adam"),
    "constant": Design(method="kae", weights="adam", keys="all"),
    "batch": Design(method="reinforce++"),
    "none": Design(method="none"),
    "signed": Design(method="none", coding="signed"),
    "filtered": Design(method="grpo", group_size=8, filtered=True),
    **{f"grpo_{size}": Design(method="grpo", group_size=size) for size in (2, 4, 8, 16)},
    **{f"rloo_{size}": Design(method="rloo", group_size=size) for size in (2, 4)},
}


def test_a_plan_with_every_control_passes():
    check_controls(FULL, "recommended", {})


@pytest.mark.parametrize("left", [name for name in FULL if name != "recommended"])
def test_a_plan_without_one_control_is_refused_and_the_control_is_named(left):
    designs = {name: design for name, design in FULL.items() if name != left}
    with pytest.raises(ValueError, match="lacks the control") as refused:
        check_controls(designs, "recommended", {})
    (name,) = [key for key, matches in required_controls(FULL["recommended"]).items() if matches(FULL[left])]
    assert f"lacks the control {name}." in str(refused.value)
    check_controls(designs, "recommended", {name: "a reason"})


@pytest.mark.parametrize(
    ("left_out", "message"), [({"grpo_3": "why"}, "is not a control"), ({"grpo_4": "why"}, "is among the designs")]
)
def test_what_is_left_out_has_to_be_a_missing_control(left_out, message):
    with pytest.raises(ValueError, match=message):
        check_controls(FULL, "recommended", left_out)
