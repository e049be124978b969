"""Contextual bandits with finitely many prompts and actions, where everything is known by enumeration."""

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

MEAN_SHARE = 0.55  # of right actions in a `one_hot_bandit`


@dataclass(frozen=True, eq=False)
class SoftmaxBandit:
    """Softmax policy ``pi(y | x) ~ exp(features(x, y) . theta)``, its parameter shared by all prompts.

    features (ndarray, shape (m, K, d)): Features of each of K actions for each of m prompts. With K = 2 this is a
        logistic policy.
    success (ndarray, shape (m, K)): Expected reward of each action, in [0, 1].
    """

    features: np.ndarray
    success: np.ndarray

    def policy(self, theta: np.ndarray) -> np.ndarray:
        """Action probabilities, shape (..., m, K), for parameters of shape (..., d)."""
        return softmax(np.einsum("mkd,...d->...mk", self.features, theta), axis=-1)

    def values(self, theta: np.ndarray) -> np.ndarray:
        """Value of every prompt, shape (..., m)."""
        return (self.policy(theta) * self.success).sum(axis=-1)

    def objective(self, theta: np.ndarray) -> np.ndarray:
        """Mean value over prompts, J(theta), shape (...)."""
        return self.values(theta).mean(axis=-1)

    def scores(self, theta: np.ndarray) -> np.ndarray:
        """Gradients of log pi for every prompt and action, shape (..., m, K, d)."""
        centre = np.einsum("...mk,mkd->...md", self.policy(theta), self.features)
        return self.features - centre[..., None, :]

    def prompt_gradients(self, theta: np.ndarray) -> np.ndarray:
        """Gradient of each prompt's value, shape (..., m, d)."""
        return np.einsum("...mk,...mkd->...md", self.policy(theta) * self.success, self.scores(theta))

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        """Gradient of J, shape (..., d)."""
        return self.prompt_gradients(theta).mean(axis=-2)

    def best_baselines(self, theta: np.ndarray) -> np.ndarray:
        """``E[W Z] / E[W]`` of each prompt with W the squared score norm (Greensmith et al., 2004), shape (..., m)."""
        weight = self.policy(theta) * (self.scores(theta) ** 2).sum(axis=-1)
        return (weight * self.success).sum(axis=-1) / weight.sum(axis=-1)


def one_hot_bandit(n_prompts: int, n_actions: int, *, wrong_norm2: float, rng: np.random.Generator) -> SoftmaxBandit:
    """Actions are right or wrong; action y moves along its own axis, wrong ones further than right ones.

    At theta = 0 the policy is uniform, and the squared score norm depends on the reward alone: not at all for
    ``wrong_norm2 = 1`` (the paper's Assumption 6 holds exactly), and nearly ``wrong_norm2`` times as large for wrong
    actions otherwise.

    wrong_norm2: Squared length of a wrong action's feature; right ones have length 1.
    rng: Chooses which actions are right: a share of 10 % to 90 % for each prompt.
    """
    share = np.clip(rng.beta(2 * MEAN_SHARE, 2 * (1 - MEAN_SHARE), n_prompts), 0.1, 0.9)
    n_right = np.clip(np.round(share * n_actions), 1, n_actions - 1)
    rank = np.argsort(np.argsort(rng.random((n_prompts, n_actions)), axis=1), axis=1)
    right = rank < n_right[:, None]
    length = np.where(right, 1.0, np.sqrt(wrong_norm2))
    return SoftmaxBandit(length[..., None] * np.eye(n_actions), right.astype(float))
