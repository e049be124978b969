"""How large the gradient is against its noise, and how much the prompts' gradients differ: what decides on the group.

Pools of different prompts are independent, so with the sample covariances of reward and score
``u_x = sum_h (Z_h - mean Z) s_h / (N - 1)`` the mean of ``<u_x, u_y>`` over x != y is unbiased for ``||g||^2``, the
squared norm of the mean gradient over all prompts that these are a sample of. Errors are the jackknife's over prompts.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from kaestat.logs.jackknife import jackknife_interval
from llm_experiments.diagnose.assumption6 import SUMMARY_COLUMNS
from llm_experiments.diagnose.gradient_mse_debiased import squared_gradient_norm, value_noise

QUANTITIES = {
    "prompt_norm2": "E ||g_x||^2",
    "total_norm2": "||g||^2",
    "between": "E ||g_x||^2 - ||g||^2",
    "value_noise": "E[W (R - V)^2] - ||g_x||^2, within-prompt noise with the true value as a baseline",
    "estimation": "E[W] Var(R) + ||g_x||^2, over G - 1 what a leave-one-out mean adds to it",
}


def signal_table(step: int, gram: np.ndarray, reward: np.ndarray, across: np.ndarray) -> pd.DataFrame:
    """Signal and noise at one target step.

    Parameters
    ----------
    step : int
    gram : ndarray, shape (P, N, N)
    reward : ndarray, shape (P, N)
    across : ndarray, shape (P,)
        ``sum_{y != x} <u_x, u_y>``.

    Returns
    -------
    DataFrame
        ``step, quantity, mean, se, n_prompts``, the quantities of `QUANTITIES`.
    """
    squared_norm = squared_gradient_norm(gram, reward)
    single = {
        "prompt_norm2": squared_norm,
        "value_noise": value_noise(gram, reward) - squared_norm,
        "estimation": reward_spread(gram, reward) + squared_norm,
    }
    found = {name: (float(each.mean()), left_out(each)) for name, each in single.items()}
    found |= {"total_norm2": squared_mean(across), "between": between_prompts(squared_norm, across)}
    rows = [
        (
            step,
            name,
            found[name][0],
            float(jackknife_interval(found[name][0], found[name][1][:, None])[0][0]),
            len(gram),
        )
        for name in QUANTITIES
    ]
    return pd.DataFrame(rows, columns=SUMMARY_COLUMNS)


def reward_spread(gram: np.ndarray, reward: np.ndarray) -> np.ndarray:
    """Unbiased estimate of ``E[W] Var(R)`` for each prompt: mean over distinct h, k, l of ``W_h (R_k - R_l)^2 / 2``."""
    n = reward.shape[-1]
    weight = np.diagonal(gram, axis1=1, axis2=2)
    squares = (reward[:, :, None] - reward[:, None, :]) ** 2
    pairs = squares.sum(axis=(1, 2))[:, None] - 2 * squares.sum(axis=-1)  # of those that leave h out
    return (weight * pairs).sum(axis=-1) / (2 * n * (n - 1) * (n - 2))


def mean_coefficients(reward: np.ndarray) -> np.ndarray:
    """``(Z_h - mean Z) / (N - 1)``, shape (..., N): of the scores, an unbiased estimate of ``g_x``."""
    reward = np.asarray(reward, dtype=float)
    return (reward - reward.mean(axis=-1, keepdims=True)) / (reward.shape[-1] - 1)


def squared_mean(across: np.ndarray) -> tuple[float, np.ndarray]:
    """Unbiased estimate of ``||g||^2``, and the same without each prompt, shape (P,); NaN with fewer than three."""
    n, total = len(across), across.sum()
    if n < 3:
        return (float(total / 2) if n == 2 else np.nan), np.full(n, np.nan)
    return float(total / (n * (n - 1))), (total - 2 * across) / ((n - 1) * (n - 2))


def between_prompts(squared_norm: np.ndarray, across: np.ndarray) -> tuple[float, np.ndarray]:
    """``E ||g_x||^2 - ||g||^2``, and the same without each prompt, shape (P,)."""
    signal, signal_out = squared_mean(across)
    return float(squared_norm.mean() - signal), left_out(squared_norm) - signal_out


def left_out(each: np.ndarray) -> np.ndarray:
    """Means over the other prompts, shape as given; NaN of a single one."""
    others = len(each) - 1
    return (each.sum(axis=0) - each) / others if others else np.full_like(each, np.nan)
