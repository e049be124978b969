"""The Bayes filter: the exact posterior mean of a value, which no estimator can beat on average."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import betainc, expit

GRID_SIZE, GRID_EDGE = 241, 14.0  # logits -14..14


class BayesFilter:
    """Posterior of success rates that start from a Beta distribution and walk on the logit scale, on a grid.

    With the data-generating mechanism known, its posterior mean minimises the mean squared error among all functions
    of the same rewards: a lower bound for every baseline, and a yardstick for what is left to gain.

    mean, within: Mean and ``E[p (1 - p)]`` of the starting values.
    step_sd: Standard deviation of the walk, logits per step; 0 for static values.
    Raises ValueError if the walk is too slow for the grid.
    """

    def __init__(self, mean: float, within: float, step_sd: float):
        self.logits = np.linspace(-GRID_EDGE, GRID_EDGE, GRID_SIZE)
        self.values = expit(self.logits)
        share = within / (mean * (1 - mean))
        size = share / (1 - share)
        # Cells of the grid, the outermost with all that lies beyond.
        edges = expit(np.concatenate([[-np.inf], (self.logits[1:] + self.logits[:-1]) / 2, [np.inf]]))
        self.prior = np.diff(betainc(mean * size, (1 - mean) * size, edges))
        self.transition = _walk(self.logits, step_sd)

    def values_for(self, rewards: np.ndarray, moves: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """Leave-one-out posterior means: given all earlier rewards and the rest of the completion's own group.

        rewards (ndarray of 0 and 1, shape (R, T, P, G)): One group at each of T consecutive steps.
        moves (sequence of T - 1 ndarrays of shape (K, K), optional): Transition before each step but the first (`walk`,
            `jump` and their products), where the walk changes; None takes that of ``step_sd`` throughout.
        Returns ndarray, shape (R, T, P, G).
        """
        n_replicates, n_steps, n_prompts, group_size = rewards.shape
        belief = np.broadcast_to(self.prior, (n_replicates * n_prompts, GRID_SIZE))
        values = np.empty(rewards.shape)
        log_p, log_q = np.log(self.values), np.log1p(-self.values)
        for t in range(n_steps):
            if t > 0:
                belief = belief @ (self.transition if moves is None else moves[t - 1])
            group = rewards[:, t].reshape(-1, group_size)
            successes = group.sum(axis=1)
            # The left-out completion is a success or a failure: two likelihoods serve the whole group.
            failure_out, success_out = (
                self._posterior_mean(belief, np.maximum(successes - z, 0), group_size - 1, log_p, log_q) for z in (0, 1)
            )
            value = np.where(group > 0, success_out[:, None], failure_out[:, None])
            values[:, t] = value.reshape(n_replicates, n_prompts, group_size)
            belief = _updated(belief, successes, group_size, log_p, log_q)
        return values

    def walk(self, step_sd: float) -> np.ndarray:
        """Transition of a Gaussian step, also of one that is narrower than the grid's spacing; (K, K).

        Such a step moves by one point at most, which has the same mean and variance.
        """
        spacing = self.logits[1] - self.logits[0]
        if step_sd == 0 or step_sd >= 0.8 * spacing:
            return _walk(self.logits, step_sd)
        side = (step_sd / spacing) ** 2 / 2
        moved = (1 - 2 * side) * np.eye(GRID_SIZE) + side * (np.eye(GRID_SIZE, k=1) + np.eye(GRID_SIZE, k=-1))
        return moved / moved.sum(axis=1, keepdims=True)

    def jump(self, size: float) -> np.ndarray:
        """Transition of a jump by ``size`` logits either way with equal probabilities; (K, K)."""
        targets = self.logits[:, None, None] + np.array([-size, size])[:, None]  # (K, 2, 1)
        share = np.clip(1 - np.abs(self.logits - targets) / (self.logits[1] - self.logits[0]), 0, None).sum(axis=1)
        share[:, 0] += 1e-300  # jumps out of the grid end at its edge
        return share / share.sum(axis=1, keepdims=True)

    def _posterior_mean(
        self, belief: np.ndarray, successes: np.ndarray, count: int, log_p: np.ndarray, log_q: np.ndarray
    ) -> np.ndarray:
        return _updated(belief, np.minimum(successes, count), count, log_p, log_q) @ self.values


def _updated(belief: np.ndarray, successes: np.ndarray, count: int, log_p: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    """Belief after ``successes`` of ``count``; one table row per possible number of successes."""
    k = np.arange(count + 1)[:, None]
    likelihood = np.exp(k * log_p + (count - k) * log_q)
    updated = belief * likelihood[successes.astype(int)]
    return updated / updated.sum(axis=1, keepdims=True)


def _walk(logits: np.ndarray, step_sd: float) -> np.ndarray:
    """Transition matrix of a Gaussian step: its density at the grid's points, which has the step's variance exactly.

    (That of the normal mass of each cell is larger by a twelfth of the squared spacing.)
    """
    if step_sd == 0:
        return np.eye(len(logits))
    spacing = logits[1] - logits[0]
    if step_sd < 0.8 * spacing:
        raise ValueError(f"step_sd must be 0 or at least {0.8 * spacing:.3f}, for the grid's sake; got {step_sd!r}.")
    density = np.exp(-0.5 * ((logits[None, :] - logits[:, None]) / step_sd) ** 2)
    return density / density.sum(axis=1, keepdims=True)
