"""Accuracy from graded completions: standard errors over problems, pass@k, and paired differences of two models."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kaestat.core.bootstrap import cluster_bootstrap, mean_with_interval


@dataclass(frozen=True)
class Estimate:
    """A mean over problems.

    se: Standard error with problems as clusters: problems are a sample of all that might have been asked. NaN with a
        single problem.
    se_sampling: Standard error with the problems fixed: how far another draw of completions would move the mean. NaN
        unless every problem has two completions.
    ci_low, ci_high: 95 % percentile interval of a bootstrap over problems.
    """

    mean: float
    se: float
    se_sampling: float
    ci_low: float
    ci_high: float


def accuracy(rewards: np.ndarray, *, n_boot: int = 2000, seed: int = 0) -> Estimate:
    """Mean reward over problems.

    rewards (ndarray, shape (P, m)): Reward of each completion of each problem.
    n_boot, seed: Bootstrap over problems.
    Raises ValueError if the array has another shape, is empty, or holds something not finite.

    Examples
    --------
    >>> found = accuracy(np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]]))
    >>> found.mean, round(found.se, 3), round(found.se_sampling, 3)
    (0.5, 0.289, 0.167)
    """
    rewards = _checked(rewards)
    return _estimate(rewards.mean(axis=1), _sampling_variance(rewards), n_boot, seed)


def difference(rewards: np.ndarray, reference: np.ndarray, *, n_boot: int = 2000, seed: int = 0) -> Estimate:
    """Accuracy of one model less that of another on the same problems, paired problem by problem.

    rewards, reference (ndarray, shapes (P, m) and (P, k)): Rows stand for the same problems in the same order.
    Raises ValueError: As `accuracy`, and if the numbers of problems differ.
    """
    rewards, reference = _checked(rewards), _checked(reference)
    if len(rewards) != len(reference):
        raise ValueError(
            f"rewards and reference must be on the same problems, got {len(rewards)} and {len(reference)}."
        )
    variance = _sampling_variance(rewards) + _sampling_variance(reference)
    return _estimate(rewards.mean(axis=1) - reference.mean(axis=1), variance, n_boot, seed)


def average(estimates: Sequence[Estimate]) -> Estimate:
    """Plain average over sets, as in the last column of the paper's Tables 3-4; sets are independent samples.

    The interval is the normal one.
    """
    mean = float(np.mean([each.mean for each in estimates]))
    se, se_sampling = (
        float(np.sqrt(np.sum([getattr(each, name) ** 2 for each in estimates])) / len(estimates))
        for name in ("se", "se_sampling")
    )
    return Estimate(mean, se, se_sampling, mean - 1.96 * se, mean + 1.96 * se)


def pass_at_k(rewards: np.ndarray, k: int) -> np.ndarray:
    """Chance that one of k completions is right, estimated without bias from m of them.

    ``1 - C(m - c, k) / C(m, k)`` with c right ones (Chen et al., 2021, equation 1).

    rewards (ndarray, shape (P, m)): A completion is right if its reward is 1.
    k: From 1 to m.
    Returns ndarray, shape (P,).
    Raises ValueError if ``k`` is out of range.

    Examples
    --------
    >>> pass_at_k(np.array([[1.0, 0.0, 0.0, 0.0]]), 2)
    array([0.5])
    """
    rewards = _checked(rewards)
    m = rewards.shape[1]
    if not 1 <= k <= m:
        raise ValueError(f"k must be from 1 to the {m} completions per problem, got {k!r}.")
    wrong = m - np.sum(rewards == 1.0, axis=1)
    # The chance that k draws without replacement are all wrong, factor by factor.
    drawn = np.arange(k)
    return 1.0 - np.prod(np.clip(wrong[:, None] - drawn, 0, None) / (m - drawn), axis=1)


def _estimate(per_problem: np.ndarray, variance: float, n_boot: int, seed: int) -> Estimate:
    column = per_problem[:, None]
    draws = cluster_bootstrap(column, n_boot=n_boot, seed=seed)
    mean, se, low, high = (float(part[0]) for part in mean_with_interval(column, draws))
    return Estimate(mean, se, float(np.sqrt(variance)), low, high)


def _sampling_variance(rewards: np.ndarray) -> float:
    """Variance of the mean over completions, problems fixed."""
    n_problems, m = rewards.shape
    if m < 2:
        return float("nan")
    return float(rewards.var(axis=1, ddof=1).sum() / m / n_problems**2)


def _checked(rewards: np.ndarray) -> np.ndarray:
    rewards = np.asarray(rewards, dtype=float)
    if rewards.ndim != 2 or rewards.size == 0 or not np.isfinite(rewards).all():
        raise ValueError(f"rewards must be finite, of shape (problems, completions), got shape {rewards.shape}.")
    return rewards
