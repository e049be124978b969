"""Methods by name, specifications as text, and parameters as plain data."""

import dataclasses
import json
import math

import numpy as np
import pytest

import kaestat
from kaestat import bandwidth, make_baseline, methods, specification
from kaestat import baselines as classes
from kaestat.baselines.registry import FIXED_PARAMETERS, METHODS, parse_method
from kaestat.estimator.scaling import DEVIATION, SCALINGS
from kaestat.smoothing.kernels import Exponential, Triangular
from kaestat.smoothing.selectors import Auto, Fixed, Fraction, Rate

DESIGN = """none reinforce++ grpo rloo dr_grpo gpg opo mc_grpo qae remax maxrl bnpo grpo_passk
james_stein ebpo krpo kalman spo logit_shift bayes_filter critic cluster_blend oracle
pooled kae kae_stream kae_eb outside_value local_linear local_polynomial sieve""".split()


def test_every_method_of_the_design_is_there_and_no_other():
    assert sorted(methods()) == sorted(DESIGN)
    assert kaestat.methods is methods


@pytest.mark.parametrize("name", DESIGN)
def test_every_method_makes_its_baseline_with_its_presets(name):
    method, baseline = METHODS[name], make_baseline(name)

    assert type(baseline) is method.baseline and method.name == name and method.summary
    assert method.scale in (*SCALINGS, DEVIATION)
    assert all(getattr(baseline, key) == value for key, value in method.preset.items())
    assert dataclasses.is_dataclass(baseline) and baseline.__dataclass_params__.frozen
    for key in method.preset:
        with pytest.raises(ValueError, match=f"fixes {key}="):
            make_baseline(name, **{key: True})


def test_kaes_defaults_are_those_of_the_issue_and_its_fixed_bandwidth_the_papers():
    baseline = make_baseline("kae")

    assert isinstance(baseline.kernel, Triangular)
    assert baseline.bandwidth == make_baseline("kae_eb").bandwidth == Auto()
    assert make_baseline("kae", **FIXED_PARAMETERS["kae"]).bandwidth == Fixed(10.0)
    assert make_baseline("kae_stream").bandwidth == make_baseline("local_linear").bandwidth == Fixed(10.0)
    assert baseline.normalization == "nadaraya-watson"
    assert METHODS["kae"].scale == "none"


def test_only_methods_that_keep_the_sample_in_fix_without_own_to_false():
    assert [name for name in DESIGN if METHODS[name].preset.get("without_own") is False] == [
        "reinforce++", "grpo", "dr_grpo", "gpg", "opo", "mc_grpo", "qae", "maxrl", "bnpo", "grpo_passk",
    ]  # fmt: skip


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


def test_selectors_nest_and_lists_keep_together():
    assert specification._split("a=f(b=1,c=g(d=2,e=3)),h=(1,2),i=[3,4]", "") == [
        "a=f(b=1,c=g(d=2,e=3))",
        "h=(1,2)",
        "i=[3,4]",
    ]
    assert specification.parse_specification("m:grid=(1,2.5,3),x=1") == ("m", {"grid": (1, 2.5, 3), "x": 1})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no name"),
        (":bandwidth=10", "has no name"),
        ("kea", "unknown name 'kea'; choose one of none,"),
        ("kae:bandwidth", "cannot read 'bandwidth'"),
        ("kae:bandwidth=", "cannot read"),
        ("kae:=10", "cannot read"),
        ("kae:band width=10", "cannot read"),
        ("kae:bandwidth=10,bandwidth=20", "given twice"),
        ("kae:bandwidth=rate(c=2", "parentheses do not match"),
        ("kae:bandwidth=rate(c=2))", "parentheses do not match"),
        ("kae:bandwidth=silverman(c=2)", "selector: unknown name 'silverman'"),
        ("kae:bandwidth=rate(h=2)", "selector 'rate': unknown parameter 'h'; it takes c"),
        ("kae:kernel=exponential(tau=2)", "unknown parameter 'tau'; it takes rho"),
    ],
)
def test_unreadable_specifications_say_what_to_write(text, message):
    with pytest.raises(ValueError) as error:
        parse_method(text)
    assert message in str(error.value)


@pytest.mark.parametrize("text", [None, 10, ["kae"]])
def test_a_specification_must_be_text(text):
    with pytest.raises(TypeError, match="method specification"):
        parse_method(text)


PLAIN = [
    None, True, 3, 0.1, math.inf, "text", (1, 2.5), (("a", 1), None),
    Exponential(0.9), Triangular(), Rate(2.0), Fraction(0.3), Fixed(7),
    make_baseline("kae", bandwidth=Rate(2), kernel=Exponential(0.5), cold_start=0.25),
    make_baseline("spo", rho=0.9), make_baseline("grpo"), make_baseline("sieve", basis="polynomial"),
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_what_is_dumped_and_loaded_through_json_is_equal(value):
    loaded = specification.load(json.loads(json.dumps(specification.dump(value))))

    assert loaded == value and type(loaded) is type(value)


@pytest.mark.parametrize("name", [n for n in DESIGN if n not in ("critic", "oracle", "remax", "outside_value")])
def test_every_baseline_survives_dump_and_load(name):
    assert specification.load(json.loads(json.dumps(specification.dump(make_baseline(name))))) == make_baseline(name)


@pytest.mark.parametrize("name", sorted(bandwidth.SELECTORS))
def test_every_selector_survives_dump_and_load(name):
    selector = bandwidth.make_selector(name)

    assert specification.load(json.loads(json.dumps(specification.dump(selector)))) == selector


def test_stored_types_do_not_share_a_name():
    stored = [*bandwidth.SELECTORS.values(), *(getattr(classes, name) for name in classes.__all__)]

    assert all(specification._stored_types()[cls.__name__] is cls for cls in stored)


@pytest.mark.parametrize("value", [np.float64(10), np.float32(0.5), np.int64(3), np.bool_(True)], ids=repr)
def test_numpy_scalars_are_dumped_as_plain_numbers(value):
    plain = specification.dump(value)

    assert plain == value and type(plain) in (bool, int, float)


@pytest.mark.parametrize(
    "value", [lambda u: u, {"a": 1}, np.ones(3), make_baseline("kae", kernel=lambda u: 2.0 * np.exp(-2 * u)), object()]
)
def test_what_cannot_be_stored_is_a_type_error_that_says_what_to_do(value):
    with pytest.raises(TypeError, match="build the estimator from code"):
        specification.dump(value)


def test_the_error_does_not_print_a_whole_table_of_features():
    with pytest.raises(TypeError) as error:
        specification.dump(make_baseline("critic", features={f"prompt {k}": [1.0, 2.0] for k in range(10_000)}))
    assert len(str(error.value)) < 500


def test_data_of_an_unknown_type_are_refused():
    with pytest.raises(ValueError, match="unknown type 'Kernel99'"):
        specification.load({"type": "Kernel99", "params": {}})
