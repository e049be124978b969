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


def test_a_missing_prompt_is_named():
    with pytest.raises(ValueError, match="no value given for prompt 'b'"):
        AdvantageEstimator("oracle", value={"a": 0.5}).step(["a", "b"], [1.0, 0], 0)


def test_a_function_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="must return 2 numbers"):
        AdvantageEstimator("oracle", value=lambda prompts, step: [0.5]).step(["a", "b"], [1.0, 0], 0)


def test_values_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="value of prompt 'a' is nan; give a finite number"):
        AdvantageEstimator("oracle", value={"a": np.nan}).step(["a"], [1.0], 0)


def oracle(case, *, value):
    return per_completion(case, lambda p, g: value[case.prompts[p]])


CASES = [MethodCase("oracle", oracle, {"value": TRUTH})]
