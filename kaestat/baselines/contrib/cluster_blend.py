"""The rest of the group, blended with the running mean of its cluster: our version of the idea of BV-Blend."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kaestat.baselines.base import WithoutVisits
from kaestat.core.arrays import Array, Groups, Visits
from kaestat.core.checks import check_share
from kaestat.core.digits import variance_from

MOMENTS = ("count", "total", "total_sq", "within", "freedom")
MOST_CLUSTERS = 100_000


@dataclass(frozen=True)
class ClusterBlend(WithoutVisits):
    """Leave-one-out group mean and running mean of the prompt's cluster, weighted by their uncertainty.

    ::

        b_g = (1 - w) mean_{k != g} Z_k + w mu,     w = s / (s + tau^2 + v / N),     s = sigma^2 / (G - 1)

    with the moments of the cluster over *earlier* steps, each of which loses the factor ``forgetting`` with every
    step that follows: ``N`` completions with mean ``mu`` and variance ``v``, of which ``sigma^2`` lies within groups
    and ``tau^2 = [v - sigma^2]_+`` between prompts. ``v / N`` is the squared standard error of mu. A cluster not seen
    yet has no weight beside a group; without one the value is the mean of all clusters, and 0 at the first step.

    BV-Blend (Chang et al., 2026) blends moving moments of a cluster with those of the group by a weight from a standard
    error of the mean, for a standardised advantage. Of it the abstract alone was read: the weight here is ours, the
    best linear one, the completion's own reward is left out, and nothing is divided by.

    Parameters
    ----------
    clusters : mapping or callable
        ``{prompt_id: cluster}``, or ``clusters(prompt_ids) -> sequence of P clusters``: whole numbers of at least 0.
    forgetting : float
        Factor in (0, 1] by which earlier steps lose weight at every step.

    Raises
    ------
    ValueError
        If ``forgetting`` is out of range, or a prompt's cluster is missing or no whole number from 0 to 99,999.
    """

    clusters: Mapping[Hashable, int] | Callable[[list[Hashable]], Sequence[int]] | None = None
    forgetting: float = 0.9

    stepwise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_share("forgetting", self.forgetting)

    @property
    def in_order_only(self) -> bool:
        return True

    @property
    def pools_prompts(self) -> bool:
        return True

    @property
    def missing_input(self) -> str | None:
        return None if self.clusters is not None else "clusters= (a mapping or a function of prompt ids)"

    def advance(self, carry: Any, groups: Groups, visits: Visits, *, step: int | Array) -> dict[str, np.ndarray]:
        codes = self._codes(groups)
        reward, present = (np.asarray(part, dtype=float) for part in (groups.reward, groups.present))
        reward = np.where(present > 0, reward, 0.0)
        count, total = present.sum(axis=-1), reward.sum(axis=-1)
        mean = total / np.maximum(count, 1)
        of_prompt = {
            "count": count,
            "total": total,
            "total_sq": (reward**2).sum(axis=-1),
            "within": (present * (reward - mean[..., None]) ** 2).sum(axis=-1),
            "freedom": np.maximum(count - 1, 0),
        }
        past = _with_room(carry, int(codes.max(initial=-1)) + 1)
        member = (codes[:, None] == np.arange(past["count"].shape[-1])).astype(float)
        return {name: self.forgetting * past[name] + of_prompt[name] @ member for name in MOMENTS}

    def accepts_carry(self, carry: dict[str, np.ndarray] | None) -> bool:
        if carry is None:
            return True
        if set(carry) != set(MOMENTS):
            return False
        alike = len({column.shape for column in carry.values()}) == 1 and carry["count"].ndim == 1
        return alike and all((carry[name] >= 0).all() for name in MOMENTS if name != "total")

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        codes, xp = self._codes(groups), groups.xp
        past = _with_room(carry, int(codes.max(initial=-1)) + 1)
        n, total, total_sq, within, freedom = (past[name] for name in MOMENTS)
        everybody = _over(total.sum(axis=-1, keepdims=True), n.sum(axis=-1, keepdims=True))
        mean = np.where(n > 0, _over(total, n), everybody)
        variance = variance_from(_over(total_sq, n), mean) * (n > 0)
        noise = np.where(freedom > 0, _over(within, freedom), variance)
        error = np.maximum(variance - noise, 0.0) + _over(variance, n)
        mu, sigma2, apart, seen = (column[..., codes][..., None] for column in (mean, noise, error, n))
        count, carried = (np.asarray(part, dtype=float) for part in groups.others())
        of_group = _over(sigma2 + 0 * count, count)
        weight = np.where(of_group + apart > 0, _over(of_group, of_group + apart), 1.0) * (seen > 0)
        weight = np.where(count > 0, weight, 1.0)
        found = (1 - weight) * _over(carried, count) + weight * mu
        return xp.asarray(found, dtype=groups.reward.dtype) + xp.zeros_like(groups.reward)

    def _codes(self, groups: Groups) -> np.ndarray:
        """Cluster of each prompt, shape (P,)."""
        if self.clusters is None:
            raise ValueError(f"cluster_blend: give it {self.missing_input}.")
        if groups.prompt_ids is None:
            raise ValueError("cluster_blend: groups carry no prompt_ids to look clusters up by.")
        prompts = list(groups.prompt_ids)
        if callable(self.clusters):
            found = np.asarray(self.clusters(prompts))
        else:
            missing = [prompt for prompt in prompts if prompt not in self.clusters]
            if missing:
                raise ValueError(f"cluster_blend: no cluster of prompt {missing[0]!r} (and {len(missing) - 1} more).")
            found = np.array([self.clusters[prompt] for prompt in prompts])
        known = found.shape == (len(prompts),) and (found.dtype.kind in "iu" or len(prompts) == 0)
        if not known or not ((found >= 0) & (found < MOST_CLUSTERS)).all():
            raise ValueError(
                f"cluster_blend: clusters must be {len(prompts)} whole numbers from 0 to {MOST_CLUSTERS - 1:,}; number "
                "them, and keep the numbers through the run."
            )
        return found.astype(np.intp)


def _with_room(carry: Any, size: int) -> dict[str, np.ndarray]:
    """The moments with a place for every cluster up to now."""
    if carry is None:
        return {name: np.zeros(size) for name in MOMENTS}
    more = max(size - carry["count"].shape[-1], 0)
    return {name: np.pad(column, [(0, 0)] * (column.ndim - 1) + [(0, more)]) for name, column in carry.items()}


def _over(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """``numerator / denominator``, 0 where that is 0."""
    return np.where(denominator > 0, numerator / np.where(denominator > 0, denominator, 1.0), 0.0)
