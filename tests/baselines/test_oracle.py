"""The oracle: the true value in any of its three forms."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator, make_baseline
from tests.helpers.cases import NO_PAST, groups
from tests.helpers.method_case import TRUTH, MethodCase
from tests.helpers.references import per_completion


@pytest.mark.parametrize(
    "value",
    [{"a": 0.25, "b": 0.5}, lambda prompts, step: [0.25 if p == "a" else 0.5 for p in prompts], np.array([0.25, 0.5])],
    ids=["mapping", "function", "array"],
)
def test_value_is_looked_up(value):
    values = make_baseline("oracle", value=value).values(groups([1, 0], [1, 1], prompt_ids=["a", "b"]), NO_PAST, step=3)
    np.testing.assert_array_equal(values, [[0.25, 0.25], [0.5, 0.5]])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": 0.5}, "no value given for prompt 'b'"),
        (lambda prompts, step: [0.5], "must return 2 numbers"),
        ({"a": np.nan, "b": 0.5}, "prompt 'a' is nan; give a finite number"),
    ],
    ids=["missing", "too few", "not finite"],
)
def test_values_that_are_not_there_are_refused(value, message):
    with pytest.raises(ValueError, match=message):
        AdvantageEstimator("oracle", value=value).step(["a", "b"], [1.0, 0], 0)


@pytest.mark.parametrize(("name", "given"), [("oracle", "value"), ("remax", "greedy")])
def test_a_mapping_wants_ids(name, given):
    with pytest.raises(ValueError, match=f"{name}: groups carry no prompt_ids"):
        make_baseline(name, **{given: {"a": 1.0}}).values(groups([1, 0]), NO_PAST, step=0)


def oracle(case, *, value):
    return per_completion(case, lambda p, g: value[case.prompts[p]])


CASES = [MethodCase("oracle", oracle, {"value": TRUTH})]
