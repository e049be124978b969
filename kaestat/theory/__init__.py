"""Closed forms, one topic per file: linear smoothers, optimal rates, Theorems 1 to 3, the law of the baseline."""

from kaestat.theory.baseline_law import DesignNoise, PromptMoments, predict_completions, predict_noise
from kaestat.theory.gradient import excess_gradient_mse, gradient_mse_reduction
from kaestat.theory.linear import LinearError, linear_error, minimax_weights, worst_case_error
from kaestat.theory.policy import suboptimality_recursion
from kaestat.theory.rates import (
    integer_bandwidth_error,
    local_rate_slopes,
    optimal_bandwidth,
    optimal_integer_bandwidth,
)
from kaestat.theory.value import algorithm1_error, theorem1_bound

__all__ = [
    "DesignNoise",
    "LinearError",
    "PromptMoments",
    "algorithm1_error",
    "excess_gradient_mse",
    "gradient_mse_reduction",
    "integer_bandwidth_error",
    "linear_error",
    "local_rate_slopes",
    "minimax_weights",
    "optimal_bandwidth",
    "optimal_integer_bandwidth",
    "predict_completions",
    "predict_noise",
    "suboptimality_recursion",
    "theorem1_bound",
    "worst_case_error",
]
