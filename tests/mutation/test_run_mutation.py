"""Mutation testing: cosmic-ray is asked for the faults that are promised, and what it says is read rightly."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.mutation.run_mutation import configuration, survivors
from tests.mutation.tested_modules import TESTED

ROOT = Path(__file__).parents[2]
DIFF = "--- mutation diff ---\n--- a/m.py\n+++ b/m.py\n@@ -1,2 +1,2 @@\n x = 1\n-y = x < 2\n+y = x <= 2"


def answer(outcome: str | None, worker: str = "normal", row: int = 2) -> str:
    mutation = {"module_path": "m.py", "operator_name": "core/Lt_LtE", "start_pos": [row, 6]}
    result = {"worker_outcome": worker, "test_outcome": outcome, "diff": DIFF, "output": "why"}
    return json.dumps([{"job_id": "1", "mutations": [mutation]}, result])


def test_survivors_are_told_by_place_and_change_and_others_are_counted():
    dump = "\n".join([answer("killed"), answer("survived"), answer(None, "skipped"), answer("killed", row=5)])
    assert survivors(dump) == (3, ["m.py:2 core/Lt_LtE\n  -y = x < 2\n  +y = x <= 2"])


@pytest.mark.parametrize(("outcome", "worker"), [("incompetent", "normal"), (None, "exception"), (None, "abnormal")])
def test_a_fault_that_could_not_be_tried_is_an_error(outcome, worker):
    with pytest.raises(RuntimeError, match="why"):
        survivors(answer(outcome, worker))


def test_a_fault_without_an_answer_is_an_error():
    with pytest.raises(RuntimeError, match="was not tried"):
        survivors(json.dumps([{"job_id": "1", "mutations": [{"module_path": "m.py"}]}, None]))


@pytest.mark.parametrize("module", TESTED)
def test_a_module_and_its_tests_are_there(module):
    settings = tomllib.loads(configuration(module, "python"))["cosmic-ray"]
    assert settings["module-path"] == module and (ROOT / module).is_file()
    files = re.findall(r"tests/\S+\.py", settings["test-command"])
    assert files and all((ROOT / file).is_file() for file in files)
    assert ("-k" in settings["test-command"]) == ("tests/estimator/test_equivalences.py" in files)


@pytest.mark.parametrize(
    ("operator", "kept"),
    [
        ("ReplaceBinaryOperator_Add_Sub", True),
        ("ReplaceBinaryOperator_Add_Mul", False),
        ("ReplaceBinaryOperator_BitOr_BitAnd", False),
        ("ReplaceComparisonOperator_Lt_LtE", True),
        ("ReplaceComparisonOperator_Lt_Gt", False),
        ("ReplaceUnaryOperator_Delete_USub", True),
        ("ReplaceUnaryOperator_USub_Not", False),
        ("ReplaceAndWithOr", True),
        ("ReplaceFalseWithTrue", True),
        ("AddNot", True),
        ("NumberReplacer", True),
        ("RemoveDecorator", False),
        ("VariableReplacer", False),
    ],
)
def test_the_kinds_of_fault_are_those_of_the_documentation(operator, kept):
    filters = tomllib.loads(configuration("kaestat/smoothing/kernels.py"))["cosmic-ray"]["filters"]["operators-filter"]
    assert not any(re.match(pattern, f"core/{operator}") for pattern in filters["exclude-operators"]) == kept
