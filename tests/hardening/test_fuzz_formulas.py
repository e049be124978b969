"""Every formula of `kaestat.theory` and `kaestat.inference`, and the simulated run, for any arguments."""

from __future__ import annotations

import dataclasses
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


FORMULAS: dict[Callable[..., Any], dict[str, st.SearchStrategy]] = {
    theory.algorithm1_error: {
        "path": array(SHARES, 4),
        "visits": WHOLE,
        "group_size": WHOLE,
        "h": NUMBER,
        "kernel": KERNEL,
        "noise_variance": st.none() | array(SHARES, 4),
    },
    theory.theorem1_bound: {
        "step": WHOLE,
        "visits": WHOLE,
        "group_size": WHOLE,
        "h": NUMBER,
        "drift": NUMBER,
        "value_bound": NUMBER,
        "noise_variance": NUMBER,
        "kernel": KERNEL,
    },
    theory.integer_bandwidth_error: {
        "bandwidth": WHOLE | array(POSITIVE, 2),
        "lipschitz": NUMBER,
        "noise_variance": NUMBER | array(POSITIVE, 2),
    },
    theory.optimal_integer_bandwidth: {"lipschitz": NUMBER, "noise_variance": NUMBER},
    theory.local_rate_slopes: {
        "sizes": mostly(st.lists(st.integers(1, 10**6), max_size=4), ODD_ARRAYS),
        "lipschitz": NUMBER,
        "noise_variance": NUMBER,
    },
    theory.optimal_bandwidth: {
        "kernel": KERNEL,
        "lipschitz": NUMBER,
        "noise_variance": NUMBER,
        "per_step": NUMBER,
    },
    theory.optimal_mse: {"kernel": KERNEL, "lipschitz": NUMBER, "noise_variance": NUMBER, "per_step": NUMBER},
    theory.steady_state_gain: {"drift_variance": NUMBER, "noise_variance": NUMBER},
    theory.linear_error: {
        "weights": array(SHARES, 3),
        "path": array(SHARES, 3),
        "noise_variance": NUMBER | array(SHARES, 3),
        "target": NUMBER,
    },
    theory.worst_case_bias: {"weights": array(SHARES, 3), "lags": array(POSITIVE, 3), "lipschitz": NUMBER},
    theory.worst_case_error: {
        "weights": array(SHARES, 3),
        "lags": array(POSITIVE, 3),
        "noise_variance": NUMBER | array(SHARES, 3),
        "lipschitz": NUMBER,
    },
    theory.minimax_weights: {
        "lags": array(POSITIVE, 3),
        "noise_variance": NUMBER | array(POSITIVE, 3),
        "lipschitz": NUMBER,
    },
    theory.excess_gradient_mse: {
        "value_mse": NUMBER | array(SHARES, 3),
        "score_norm2": NUMBER | array(POSITIVE, 3),
        "batch": WHOLE,
        "group_size": WHOLE,
        "bias": NUMBER | array(SHARES, 3),
        "covariance": NUMBER | array(SHARES, 3),
        "own_derivative": NUMBER | array(SHARES, 3),
        "value_gradient_norm2": NUMBER | array(SHARES, 3),
    },
    theory.gradient_mse_reduction: {
        "value_mse": NUMBER | array(SHARES, 3),
        "other_value_mse": NUMBER | array(SHARES, 3),
        "reward_variance": NUMBER | array(SHARES, 3),
    },
    theory.suboptimality_recursion: {
        "initial_gap": NUMBER,
        "gradient_mse": array(SHARES, 3),
        "learning_rate": array(POSITIVE, 3),
        "pl": NUMBER,
        "smoothness": NUMBER,
    },
    theory.theorem3_bound: {
        "initial_gap": NUMBER,
        "largest_mse": NUMBER,
        "beta": NUMBER,
        "pl": NUMBER,
        "smoothness": NUMBER,
    },
    bootstrap.cluster_bootstrap: {"samples": array(SHARES, 4, 2), "n_boot": mostly(SIZES, ODD_SIZES), "seed": WHOLE},
    bootstrap.mean_with_interval: {"samples": array(SHARES, 4, 2), "draws": array(SHARES, 5, 2)},
    inference.value_interval: {
        "groups": st.just(Groups(np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.5]]))),
        "visits": st.just(
            Visits(
                *(
                    np.array(rows)
                    for rows in ([[3.0, 1], [4, 2]], [[3.0, 3], [2, 0]], [[1.0, 2], [2, 0]], [[1.0, 2], [2, 0]])
                )
            )
        ),
        "step": WHOLE,
        "kernel": KERNEL,
        "bandwidth": mostly(POSITIVE | st.just("loo_cv"), NUMBERS | JUNK),
        "kind": mostly(st.sampled_from(inference.KINDS)),
        "level": mostly(st.sampled_from([0.5, 0.9, 0.95]), NUMBERS | JUNK),
        "lipschitz": st.none() | NUMBER,
        "bounds": mostly(st.sampled_from([(0.0, 1.0), (-1, 2)]), st.tuples(NUMBERS, NUMBERS) | JUNK),
    },
    simulated_run: {
        "n_prompts": mostly(SIZES, ODD_SIZES),
        "n_epochs": mostly(SIZES, ODD_SIZES),
        "group_size": mostly(SIZES, ODD_SIZES),
        "seed": WHOLE,
    },
}


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
    arguments = {name: data.draw(strategy) for name, strategy in FORMULAS[formula].items()}
    result = attempt(lambda: formula(**arguments), [*arguments, "selector", "shapes"])
    if result is not REFUSED and not is_known_to_be_nan(formula, arguments):
        for numbers in numbers_of(result):
            assert not np.isnan(np.asarray(numbers, dtype=float)).any(), arguments
