"""The Bayes filter: the exact posterior mean of a value, which no estimator can beat on average.

With the data-generating mechanism known, it minimises the mean squared error among all functions of the same rewards.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import betainc, expit, gammaln

LOGITS = np.linspace(-14.0, 14.0, 241)
VALUES = expit(LOGITS)
SPACING = LOGITS[1] - LOGITS[0]
Moves = Callable[[int, np.ndarray], np.ndarray]  # beliefs (..., D, K) before visit t from those after the one before


class Grid:
    """Success rates on a grid of logits: the prior of a Beta distribution, and transitions.

    mean, within: Mean and ``E[p (1 - p)]`` of the Beta distribution.
    """

    logits, values = LOGITS, VALUES

    def __init__(self, mean: float, within: float):
        share = within / (mean * (1 - mean))
        size = share / (1 - share)
        # Cells of the grid, the outermost with all that lies beyond.
        edges = expit(np.concatenate([[-np.inf], (LOGITS[1:] + LOGITS[:-1]) / 2, [np.inf]]))
        self.prior = np.diff(betainc(mean * size, (1 - mean) * size, edges))

    def walk(self, step_sd: float) -> np.ndarray:
        """Transition of a Gaussian step; (K, K). It has the step's variance exactly.

        A step narrower than the grid's spacing moves by one point at most.
        """
        if step_sd >= 0.8 * SPACING:
            # The density at the grid's points: the normal mass of each cell has a twelfth of the squared spacing more.
            moved = np.exp(-0.5 * ((LOGITS[None, :] - LOGITS[:, None]) / step_sd) ** 2)
        else:
            side, one = (step_sd / SPACING) ** 2 / 2, np.eye(len(LOGITS))
            moved = (1 - 2 * side) * one + side * (np.eye(len(LOGITS), k=1) + np.eye(len(LOGITS), k=-1))
        return moved / moved.sum(axis=1, keepdims=True)


def known_values(reward: np.ndarray, prior: np.ndarray, moves: Moves, *, kappa: float | None = None) -> np.ndarray:
    """Leave-one-out posterior means: given all earlier rewards and the rest of its own group; (R, T, P, G).

    reward (ndarray, shape (R, T, P, G)): Of 0 and 1, or with ``kappa`` Beta(kappa p, kappa (1 - p)).
    prior (ndarray, shape (D, K)): Of the D kinds of prompts and K logits.
    """
    n_replicates, n_visits, n_prompts, size = reward.shape
    success = VALUES
    belief = np.broadcast_to(prior, (n_replicates * n_prompts, *prior.shape))
    known = np.empty(reward.shape)
    for t in range(n_visits):
        belief = moves(t, belief) if t else belief
        group = reward[:, t].reshape(-1, size)
        each = _log_density(group, success, kappa)  # (RP, G, K)
        whole = each.sum(axis=1)
        level = belief.sum(axis=1)
        if kappa is None:  # two outcomes serve the whole group
            mean = [_mean(level, whole - _log_density(np.full(1, z), success, None), success) for z in (0.0, 1.0)]
            values = np.where(group > 0, mean[1][:, None], mean[0][:, None])
        else:
            values = np.stack([_mean(level, whole - each[:, g], success) for g in range(size)], axis=1)
        known[:, t] = values.reshape(n_replicates, n_prompts, size)
        belief = belief * np.exp(whole - whole.max(axis=1, keepdims=True))[:, None]
        belief = belief / belief.sum(axis=(1, 2), keepdims=True)
    return known


def _mean(belief: np.ndarray, log_likelihood: np.ndarray, success: np.ndarray) -> np.ndarray:
    posterior = belief * np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    return posterior @ success / posterior.sum(axis=1)


def _log_density(reward: np.ndarray, success: np.ndarray, kappa: float | None) -> np.ndarray:
    """Log density of rewards at each logit; (..., K)."""
    z = reward[..., None]
    if kappa is None:
        return z * np.log(success) + (1 - z) * np.log1p(-success)
    a, b = kappa * success, kappa * (1 - success)
    return (a - 1) * np.log(z) + (b - 1) * np.log1p(-z) + gammaln(kappa) - gammaln(a) - gammaln(b)
