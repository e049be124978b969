"""Methods by name, specifications as text, and parameters as plain data."""

import dataclasses
import json
import math

import numpy as np
import pytest

import kaestat
from kaestat import make_baseline
from kaestat.baselines import BayesFilter, specification
from kaestat.baselines.registry import METHODS, parse_method
from kaestat.estimator.scaling import DEVIATION, SCALINGS
from kaestat.smoothing.kernels import Exponential, Triangular
from kaestat.smoothing.selectors import Fixed, Fraction, Rate
from tests.helpers.cases import NO_PAST, groups
from tests.helpers.estimators import PARAMETERS
from tests.helpers.method_table import METHODS as CASES


@pytest.mark.parametrize("name", METHODS)
def test_every_method_makes_its_baseline_with_its_presets(name):
    method, baseline = METHODS[name], make_baseline(name)

    assert type(baseline) is method.baseline and method.name == name and method.summary
    assert method.scale in (*SCALINGS, DEVIATION)
    assert all(getattr(baseline, key) == value for key, value in method.preset.items())
    assert dataclasses.is_dataclass(baseline) and baseline.__dataclass_params__.frozen
    for key in method.preset:
        with pytest.raises(ValueError, match=f"fixes {key}="):
            make_baseline(name, **{key: True})


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.default.horizon == 0])
def test_a_method_has_the_value_of_another_exactly_where_its_row_says_so(name):
    """With the own reward left out, one group of each prompt and no past."""
    method = METHODS[name]
    if method.needs is not None:
        assert not method.same_value_as
        return
    packed = groups([1, 0, 0.5], [0, 1, 1, 0.25], [1, 0])
    ours, grpos = (
        made.default.leave_one_out().values(packed, NO_PAST, step=0)[packed.present > 0]
        for made in (method, METHODS["grpo"])
    )
    assert np.allclose(ours, grpos) == ("grpo" in (name, method.same_value_as))


def test_every_baseline_has_a_slow_reference():
    with_cases = {METHODS[case.name].baseline for case in CASES}
    assert {each.baseline for each in METHODS.values()} - with_cases == {BayesFilter}  # its reference takes whole runs


def test_baselines_whose_references_take_weights_and_no_others_say_that_they_do():
    by_reference = {case.name for case in CASES if case.weighted}
    assert {case.name for case in CASES if make_baseline(case.name).takes_weights} == by_reference


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_method_that_needs_more_than_rewards_says_so_until_it_has_it(name):
    (key,) = PARAMETERS[name]
    assert make_baseline(name).missing_input.startswith(f"{key}= ")
    assert make_baseline(name, **PARAMETERS[name]).missing_input is None
    with pytest.raises(ValueError, match=f"{key}= "):
        kaestat.AdvantageEstimator(name)


def test_remarks_say_what_is_needed_what_estimates_no_mean_and_what_sees_its_own_reward():
    assert METHODS["rloo"].remarks == ()
    assert METHODS["opo"].remarks == ("needs weights of completions", "its value contains the completion's own reward")
    assert METHODS["oracle"].remarks[0].startswith("needs value= (")
    assert METHODS["mc_grpo"].remarks[0] == "takes one reward of the group for its mean"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kae", ("kae", {})),
        (" kae:bandwidth=10,kernel=exponential ", ("kae", {"bandwidth": 10, "kernel": "exponential"})),
        ("kae:bandwidth=1e1 , normalization = algorithm1", ("kae", {"bandwidth": 10.0, "normalization": "algorithm1"})),
        ("kae:bandwidth=inf", ("kae", {"bandwidth": math.inf})),
        ("kae:bandwidth=rate(c=2)", ("kae", {"bandwidth": Rate(2)})),
        ("kae:bandwidth=fraction(h=0.2)", ("kae", {"bandwidth": Fraction(0.2)})),
        ("kae:kernel=exponential(rho=0.9),bandwidth=3", ("kae", {"kernel": Exponential(0.9), "bandwidth": 3})),
        ("james_stein:paper_factor=true", ("james_stein", {"paper_factor": True})),
        ("spo:rho=none,prior_count=4", ("spo", {"rho": None, "prior_count": 4})),
        ("kae:cold_start=-0.5", ("kae", {"cold_start": -0.5})),
        ("kae:", ("kae", {})),
    ],
)  # fmt: skip
def test_specifications_are_read(text, expected):
    assert parse_method(text) == expected
    make_baseline(expected[0], **parse_method(text)[1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no name"),
        ("kea", "unknown name 'kea' (did you mean 'kae'?); choose one of none,"),
        ("kae:bandwidth", "cannot read 'bandwidth'"),
        ("kae:band width=10", "cannot read"),
        ("kae:bandwidth=10,bandwidth=20", "given twice"),
        ("kae:bandwidth=rate(c=2", "parentheses do not match"),
        ("kae:bandwidth=silverman(c=2)", "selector: unknown name 'silverman'"),
        ("kae:bandwidth=rate(h=2)", "selector 'rate': unknown parameter 'h'; it takes c"),
        ("kae:kernel=exponential(tau=2)", "unknown parameter 'tau'; it takes rho"),
    ],
)
def test_unreadable_specifications_say_what_to_write(text, message):
    with pytest.raises(ValueError) as error:
        parse_method(text)
    assert message in str(error.value)


PLAIN = [
    None, True, 3, 0.1, math.inf, "text", (1, 2.5), (("a", 1), None),
    Exponential(0.9), Triangular(), Rate(2.0), Fraction(0.3), Fixed(7),
    make_baseline("kae", bandwidth=Rate(2), kernel=Exponential(0.5), cold_start=0.25),
    make_baseline("spo", rho=0.9), make_baseline("sieve", n_basis=4), *map(make_baseline, METHODS),
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_what_is_dumped_and_loaded_through_json_is_equal(value):
    loaded = specification.load(json.loads(json.dumps(specification.dump(value))))

    assert loaded == value and type(loaded) is type(value)


@pytest.mark.parametrize(
    "value", [lambda u: u, {"a": 1}, np.ones(3), make_baseline("kae", kernel=lambda u: 2.0 * np.exp(-2 * u)), object()]
)
def test_what_cannot_be_stored_is_a_type_error_that_says_what_to_do(value):
    with pytest.raises(TypeError, match="build the estimator from code"):
        specification.dump(value)


def test_data_of_an_unknown_type_are_refused():
    with pytest.raises(ValueError, match="unknown type 'Kernel99'"):
        specification.load({"type": "Kernel99", "params": {}})
