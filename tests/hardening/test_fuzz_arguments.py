"""Functions and objects get arguments that make no sense: a proper result, or a refusal that names the argument."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kaestat import AdvantageEstimator, RewardLog, make_baseline, methods, risk_differences, value_risk
from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import parse_method
from kaestat.smoothing.kernels import KERNELS, Exponential
from kaestat.smoothing.selectors import SELECTORS
from tests.hardening.test_fuzz_readers import check_log
from tests.helpers.cases import groups, visits
from tests.helpers.contract import JUNK, NUMBERS, REFUSED, attempt, mostly

PARTS = ["kae", "kae_eb", "local_polynomial", "sieve", "spo", ":", "=", ",", "(", ")", "[", "]", "bandwidth", "kernel",
         "degree", "rate", "fraction", "exponential", "loo_cv", "rho", "c", "grid", "10", "0.5", "-1", "1e999", "nan",
         "inf", "none", "true", "'a'", '"', "\\", "\\d", "{", "}", "{[]:1}", "1if", "0x", "\x00", "-" * 3000, "(" * 300,
         "9" * 5000, "10**9**9", "1_0", " ", "\n", "\ud800", "*"]  # fmt: skip
SPECIFICATIONS = st.lists(st.sampled_from(PARTS), max_size=10).map("".join) | st.builds(
    "{}:{}={}".format,
    st.sampled_from(methods()),
    st.sampled_from(["bandwidth", "kernel", "degree", "n_basis", "rho", "drift_variance", "cold_start", "grid"]),
    st.sampled_from(PARTS) | st.floats().map(repr) | st.text(max_size=4),
)
PARAMETERS = sorted(
    {name for method in methods() for name in vars(make_baseline(method))} | {"c", "grid", "value", "features", "nope"}
)
SELECTOR = mostly(st.sampled_from(sorted(SELECTORS)))
KERNEL = mostly(st.sampled_from([*sorted(KERNELS), Exponential(0.5)]))


def check_values(baseline: Baseline) -> None:
    """Whatever was accepted computes finite values of the right shape."""
    if hasattr(baseline, "value") or hasattr(baseline, "features"):  # the user's own functions and tables
        return
    weights = [[1.0, 2.0, 1.0], [1.0, 3.0]] if baseline.needs_weights else None
    now, past = (
        groups([1.0, 0.0, 1.0], [0.0, 0.5], weights=weights),
        visits([(3, [1.0, 0.0]), (1, [1.0, 1.0])], [(2, [0.5])]),
    )
    values = attempt(lambda: baseline.values(now, past, step=3, carry=baseline.initial_carry()))
    assert values is not REFUSED and values.shape == (2, 3) and np.isfinite(values).all()


@given(text=SPECIFICATIONS | st.text(max_size=20) | JUNK)
def test_any_specification_is_a_method_or_refused(text):
    parsed = attempt(lambda: parse_method(text))
    if parsed is REFUSED:
        return
    name, params = parsed
    baseline = attempt(lambda: make_baseline(name, **params), [*params, "method", "selector"])
    if baseline is not REFUSED:
        check_values(baseline)


@given(
    name=mostly(st.sampled_from(methods())),
    params=st.dictionaries(st.sampled_from(PARAMETERS), NUMBERS | JUNK | KERNEL | SELECTOR, max_size=2),
    scale=mostly(st.sampled_from([None, "none", "group_std"])),
)
def test_any_parameters_make_a_baseline_or_are_refused_by_name(name, params, scale):
    baseline = attempt(lambda: make_baseline(name, **params), [*params, "method", "selector", "must be"])
    estimator = attempt(
        lambda: AdvantageEstimator(name, scale=scale, **params), [*params, "method", "scale", "selector"]
    )
    if baseline is REFUSED:
        assert estimator is REFUSED
    else:
        check_values(baseline)


@st.composite
def logs(draw) -> RewardLog:
    size = draw(st.integers(1, 16))
    rewards = st.sampled_from([0.0, 1.0, 0.5, 1.0, 0.0]) | (
        st.sampled_from([1e70, -1e70, 5e-324, 1e-200]) if draw(st.integers(0, 9)) == 0 else st.nothing()
    )
    return RewardLog(
        draw(st.lists(st.sampled_from(["a", "b", 7]), min_size=size, max_size=size)),
        draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 2**31 - 2]), min_size=size, max_size=size)),
        draw(st.lists(rewards, min_size=size, max_size=size)),
        draw(st.none() | st.lists(st.integers(0, 2), min_size=size, max_size=size)),
    )


SMALL = st.sampled_from([0, 1, 2, 5])


@given(
    log=mostly(logs()),
    chosen=mostly(
        st.lists(st.sampled_from(methods()), min_size=1, max_size=2), st.lists(SPECIFICATIONS | JUNK, max_size=2) | JUNK
    ),
    reference=mostly(st.sampled_from(["grpo", "kae"])),
    n_boot=mostly(st.sampled_from([0, 40]), st.sampled_from([-1, 1, 1.5, None, "2", True])),
    min_visits=mostly(SMALL),
    seed=mostly(SMALL, st.sampled_from([-1, 1.5, "2"])),
)
def test_any_log_has_finite_risks_or_the_question_is_refused(log, chosen, reference, n_boot, min_visits, seed):
    options = {"n_boot": n_boot, "seed": seed, "min_visits": min_visits}
    names = [*options, "log", "method", "reward", "reference", "in '", 'in "', "must be", "unknown"]
    risk = attempt(lambda: value_risk(log, chosen, **options), names)
    if risk is not REFUSED:
        assert len(risk) == len(chosen) and np.isfinite(risk["mse"]).all()
    differences = attempt(lambda: risk_differences(log, chosen, reference, **options), names)
    if differences is not REFUSED:
        assert len(differences) == len(chosen) and np.isfinite(differences["difference"]).all()


@given(
    columns=st.fixed_dictionaries(
        {
            name: mostly(st.lists(usual, max_size=5), JUNK | st.lists(JUNK, max_size=3))
            for name, usual in (
                ("prompt", st.sampled_from(["a", "b"])),
                ("step", st.sampled_from([0, 1, 2])),
                ("reward", st.sampled_from([0.0, 1.0])),
            )
        },
        optional={"group": st.lists(st.integers(0, 1), max_size=5) | JUNK, "time_axis": JUNK},
    ),
    same=st.integers(0, 5),
)
def test_any_columns_are_a_log_or_refused_by_name(columns, same):
    def cut(value: Any) -> Any:
        return (value * same)[:same] if isinstance(value, list) and value else value

    columns = {name: cut(value) for name, value in columns.items()}
    log = attempt(lambda: RewardLog(**columns), ["prompt", "step", "reward", "group", "time_axis", "log"])
    if log is not REFUSED:
        check_log(log)
