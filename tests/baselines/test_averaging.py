"""What baselines say of the weights that they take, and of what they keep apart."""

from kaestat import make_baseline, methods
from tests.helpers.method_table import METHODS as CASES


def test_baselines_whose_references_take_weights_and_no_others_say_that_they_do():
    by_reference = {case.name for case in CASES if case.weighted}
    assert {case.name for case in CASES if make_baseline(case.name).takes_weights} == by_reference


def test_only_opo_does_not_do_without_weights():
    assert [name for name in methods() if make_baseline(name).needs_weights] == ["opo"]
