"""Every formula of `kaestat.theory` and `kaestat.inference`, and the simulated run, for any arguments."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kaestat import Groups, Visits, inference, theory
from kaestat.core import bootstrap
from kaestat.datasets import simulated_run
from tests.helpers.contract import JUNK, NUMBERS, REFUSED, attempt, mostly

SHARES, SIZES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]), st.integers(0, 5)
POSITIVE = st.sampled_from([0.01, 0.5, 1.0, 2.0]) | st.floats(1e-12, 1e12)
ODD_ARRAYS = st.lists(NUMBERS, max_size=3) | JUNK
WHOLE = mostly(SIZES, NUMBERS | JUNK)
NUMBER = mostly(SHARES | POSITIVE, NUMBERS | JUNK)
ODD_SIZES = st.sampled_from(
    [-1, 1.5, None, "2", True, np.int64(3), np.array([1]), float("nan")]
)  # none that fills memory
KERNEL = mostly(st.sampled_from(["triangular", "uniform", "exponential"]))


def array(elements: st.SearchStrategy, *shape: int) -> st.SearchStrategy:
    """A proper array, as an array or as lists; or something else."""
    proper = arrays(float, shape, elements=elements)
    return mostly(proper | proper.map(np.ndarray.tolist), ODD_ARRAYS | arrays(float, (1, 2), elements=st.floats()))


EITHER, ROW = NUMBER | array(SHARES, 3), array(SHARES, 3)
PARAMETERS: dict[str, st.SearchStrategy] = {  # of every formula that takes one of this name; others are EITHER
    **dict.fromkeys(("visits", "group_size", "step", "batch", "seed"), WHOLE),
    **dict.fromkeys(("weights", "path", "gradient_mse"), ROW),
    **dict.fromkeys(("lags", "learning_rate"), array(POSITIVE, 3)),
    **dict.fromkeys(("n_boot", "n_prompts", "n_epochs"), mostly(SIZES, ODD_SIZES)),
    "kernel": KERNEL,
    "score_norm2": NUMBER | array(POSITIVE, 3),
    "sizes": mostly(st.lists(st.integers(1, 10**6), max_size=4), ODD_ARRAYS),
    "samples": array(SHARES, 4, 2),
    "draws": array(SHARES, 5, 2),
}
GROUPS = Groups(np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.5]]))
VISITS = Visits(
    *(np.array(rows) for rows in ([[3.0, 1], [4, 2]], [[3.0, 3], [2, 0]], [[1.0, 2], [2, 0]], [[1.0, 2], [2, 0]]))
)
FORMULAS: dict[Callable[..., Any], dict[str, st.SearchStrategy]] = {  # with what differs from the above
    **{getattr(theory, name): {} for name in theory.__all__ if name.islower() and not name.startswith("predict")},
    theory.algorithm1_error: {"path": array(SHARES, 4), "noise_variance": st.none() | array(SHARES, 4)},
    theory.integer_bandwidth_error: {"bandwidth": WHOLE | array(POSITIVE, 2)},
    theory.minimax_weights: {"noise_variance": NUMBER | array(POSITIVE, 3)},
    bootstrap.cluster_bootstrap: {},
    bootstrap.mean_with_interval: {},
    inference.value_interval: {
        "groups": st.just(GROUPS),
        "visits": st.just(VISITS),
        "bandwidth": mostly(POSITIVE | st.just("loo_cv"), NUMBERS | JUNK),
        "kind": mostly(st.sampled_from(inference.KINDS)),
        "level": mostly(st.sampled_from([0.5, 0.9, 0.95]), NUMBERS | JUNK),
        "lipschitz": st.none() | NUMBER,
        "bounds": mostly(st.sampled_from([(0.0, 1.0), (-1, 2)]), st.tuples(NUMBERS, NUMBERS) | JUNK),
    },
    simulated_run: {"group_size": mostly(SIZES, ODD_SIZES)},
}


def arguments_of(formula: Callable[..., Any]) -> dict[str, st.SearchStrategy]:
    """A strategy for each of its parameters."""
    strategies = PARAMETERS | FORMULAS[formula]
    return {name: strategies.get(name, EITHER) for name in inspect.signature(formula).parameters}


def numbers_of(result: Any) -> list[np.ndarray]:
    """The numbers of whatever a formula gives."""
    if dataclasses.is_dataclass(result):
        return [each for field in dataclasses.fields(result) for each in numbers_of(getattr(result, field.name))]
    if isinstance(result, tuple):
        return [each for part in result for each in numbers_of(part)]
    return [np.asarray(result)] if isinstance(result, int | float | np.ndarray | np.generic) else []


def is_known_to_be_nan(formula: Callable[..., Any], arguments: dict[str, Any]) -> bool:
    """Whether the documentation promises NaN: the error of a mean of one."""
    return formula is bootstrap.mean_with_interval and len(arguments["samples"]) == 1


@given(data=st.data(), formula=st.sampled_from(list(FORMULAS)))
def test_any_arguments_have_a_number_for_an_answer_or_are_refused_by_name(data, formula):
    arguments = {name: data.draw(strategy) for name, strategy in arguments_of(formula).items()}
    result = attempt(lambda: formula(**arguments), [*arguments, "selector", "shapes"])
    if result is not REFUSED and not is_known_to_be_nan(formula, arguments):
        for numbers in numbers_of(result):
            assert not np.isnan(np.asarray(numbers, dtype=float)).any(), arguments
