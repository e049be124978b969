"""Unbiased estimates of one prompt's inputs of the law, from its rewards, squared norms and class sums."""

import numpy as np


def squared_gradient(rewards: np.ndarray, norms: np.ndarray, products: np.ndarray) -> float:
    """Unbiased estimate of the squared norm of a prompt's gradient, from class sums alone.

    The same U-statistic as `llm_experiments.diagnose.gradient_mse.squared_gradient_norm`, for rewards 0 and 1:
    there the matrix of inner products is needed by its sums over right and wrong completions alone.

    rewards (ndarray, shape (N,)): 0 or 1; N at least 4.
    norms (ndarray, shape (N,)): Squared norms of the scores.
    products (ndarray, shape (3,)): ``|r|^2``, ``<r, w>`` and ``|w|^2``; see `prompt_scores.MetricScores`.
    """
    n = len(rewards)
    if n < 4:
        raise ValueError(f"rewards: the estimate needs 4 completions of a prompt, got {n}.")
    right = rewards == 1
    k = int(right.sum())
    own = norms[right].sum(), norms[~right].sum()
    rr, rw, ww = products[0] - own[0], products[1], products[2] - own[1]  # each completion's own square left out
    up, down = (n - k) / n, -k / n  # centred rewards
    trace = up**2 * rr + 2 * up * down * rw + down**2 * ww
    totals = -(rr + 2 * rw + ww) * (k * (n - k) / n) / ((n - 1) * (n - 2))
    mixed = -2 / (n - 2) * (up**2 * (rr + rw) + down**2 * (ww + rw))
    return float((trace + totals - mixed) / (n * (n - 3)))


def noise_at_value(rewards: np.ndarray, norms: np.ndarray) -> float:
    """Unbiased estimate of ``E[W (R - V)^2]`` with the prompt's true value V as the baseline.

    The mean over distinct (h, k, l) of ``W_h (R_h - R_k) (R_h - R_l)``, which for rewards 0 and 1 counts pairs of the
    other kind.

    rewards, norms (ndarray, shape (N,)): N at least 3.
    """
    n = len(rewards)
    right = rewards == 1
    k = int(right.sum())
    total = norms[right].sum() * (n - k) * (n - k - 1) + norms[~right].sum() * k * (k - 1)
    return float(total / (n * (n - 1) * (n - 2)))
