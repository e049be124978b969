"""The effect of completions' weights (squared score norms, or stand-ins) on the noise of a prompt's completions."""

from collections.abc import Mapping
from typing import Any

import numpy as np

SUMS = ("weight", "weight_sq", "weighted_total", "weighted_total_sq")
PRIOR = 2.0  # completions of the population, in addition to the count of a value's prior
PARTS = 3  # of `weighted_noise`


def moments(count: np.ndarray, sums: Mapping[str, np.ndarray]) -> np.ndarray:
    """Means over completions of W, W^2, W Z and W Z^2, in the last axis; 0 where there are no completions.

    ``sums`` are over completions, named as in a history (`SUMS`), each with the shape of ``count``.
    """
    n = np.where(count > 0, count, 1.0)
    return np.stack([sums[name] / n for name in SUMS], axis=-1)


def evenness(means: Any) -> float:
    """``E[W]^2 / E[W^2]``, the share of completions that unequal weights leave (Kish, 1965); 1 for equal weights."""
    weight, weight_sq = means[0], means[1]
    return min(float(weight**2 / weight_sq), 1.0) if weight_sq > 0 else 1.0


def weighted_noise(count: np.ndarray, own: np.ndarray, of_all: Any, of_prior: float, served: np.ndarray) -> np.ndarray:
    """``E[W]`` and ``E W (Z - b)^2`` of a prompt, estimated from its past and the population's.

    The model of a prompt's completions is a Dirichlet process (Ferguson, 1973). Its prior counts as m + 2 completions
    with the population's distribution: m as in a value's prior, and 2 more because weights differ by more than the
    values explain. The expected mean of any function of a completion is then its mean M over the n own completions and
    the prior's. For ``W (Z - b)^2``,

    ::

        M[W (Z - b)^2] = M[W Z^2] - 2 b M[W Z] + b^2 M[W],    least at b = M[W Z] / M[W]
    """
    share = (count / (count + of_prior + PRIOR))[:, None]
    weight, _, carried, carried_sq = np.moveaxis(share * own + (1 - share) * np.asarray(of_all), -1, 0)
    best = np.divide(carried, weight, out=np.zeros_like(weight), where=weight > 0)
    least = np.clip(carried_sq - best * carried, 0.0, None)
    return np.stack([weight, least, least + weight * (served - best) ** 2], axis=-1)


def of_population(means: Any) -> tuple[float, float, float]:
    """`weighted_noise` of an unknown prompt: the population's, about its own best baseline."""
    weight, _, carried, carried_sq = means
    least = max(carried_sq - carried**2 / weight, 0.0) if weight > 0 else 0.0
    return weight, least, least
