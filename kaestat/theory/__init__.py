"""Closed forms, one topic per file: linear smoothers, optimal rates, Theorems 1 to 3, the law of the baseline."""

from kaestat.theory.baseline_law import (
    DesignNoise,
    PromptMoments,
    best_baseline,
    none_beats_value,
    predict_completions,
    predict_noise,
)
from kaestat.theory.gradient import excess_gradient_mse, gradient_mse_reduction
from kaestat.theory.gradient_bound import GradientBound, theorem2_bound
from kaestat.theory.linear import LinearError, linear_error, minimax_weights, worst_case_bias, worst_case_error
from kaestat.theory.policy import PolicyBound, suboptimality_recursion, theorem3_bound
from kaestat.theory.rates import (
    integer_bandwidth_error,
    local_rate_slopes,
    optimal_bandwidth,
    optimal_integer_bandwidth,
    optimal_mse,
    steady_state_gain,
)
from kaestat.theory.value import ValueBound, algorithm1_error, theorem1_bound

__all__ = [
    "DesignNoise",
    "GradientBound",
    "LinearError",
    "PolicyBound",
    "PromptMoments",
    "ValueBound",
    "algorithm1_error",
    "best_baseline",
    "excess_gradient_mse",
    "gradient_mse_reduction",
    "integer_bandwidth_error",
    "linear_error",
    "local_rate_slopes",
    "minimax_weights",
    "none_beats_value",
    "optimal_bandwidth",
    "optimal_integer_bandwidth",
    "optimal_mse",
    "predict_completions",
    "predict_noise",
    "steady_state_gain",
    "suboptimality_recursion",
    "theorem1_bound",
    "theorem2_bound",
    "theorem3_bound",
    "worst_case_bias",
    "worst_case_error",
]
