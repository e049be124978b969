"""The cases of every method, and the ways from a run to its values."""

from importlib import import_module

import numpy as np
import pytest

from kaestat import Groups
from kaestat.baselines import registry
from tests.helpers.method_case import MethodCase
from tests.helpers.strategies import Step, case_at, groups_of, visits_of


def _cases() -> list[MethodCase]:
    """``CASES`` of the tests of every baseline's module."""
    modules = dict.fromkeys(method.baseline.__module__ for method in registry.METHODS.values())
    tests = [module.replace("kaestat.", "tests.").rpartition(".") for module in modules]
    return [case for room, _, name in tests for case in import_module(f"{room}.test_{name}").CASES]


METHODS = _cases()
every_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.id)


def only(condition):
    chosen = [method for method in METHODS if condition(method)]
    return pytest.mark.parametrize("method", chosen, ids=lambda method: method.id)


def carry_before(baseline, run: list[Step]):
    """The carry after every step of ``run`` but the last."""
    carry = baseline.initial_carry()
    for index, step in enumerate(run[:-1]):
        case = case_at(run, index)
        carry = baseline.advance(carry, groups_of(case), visits_of(case), step=step.number)
    return carry


def values_of(method: MethodCase, run: list[Step], *, weighted: bool = False, **layout) -> tuple[np.ndarray, Groups]:
    """Library values at the last step of a run."""
    baseline, case = method.baseline(), case_at(run, -1 % len(run))
    weighted = weighted or baseline.needs_weights
    groups = groups_of(case, weighted=weighted, padding=layout.get("padding", 0.0), spare=layout.get("spare", 0))
    visits = visits_of(case, weighted=weighted, scatter_padding=layout.get("scatter_padding", False))
    return baseline.values(groups, visits, step=case.step, carry=carry_before(baseline, run)), groups


def flat(rows) -> np.ndarray:
    return np.array([value for row in rows for value in row])


def present(values: np.ndarray, groups: Groups) -> np.ndarray:
    return values.reshape(-1) if groups.mask is None else values[groups.mask]
