"""What is logged of each generation: how good the baseline was, and how much past went into it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from kaestat import AdvantageEstimator
from kaestat.arrays import Groups, Visits
from kaestat.baselines.kae import KernelBaseline
from kaestat.packing import Packing
from kaestat.storage import unpack_arrays

ZERO = 1e-6  # advantages this small are rounding: the trainer holds them in float32


@dataclass(frozen=True, eq=False)
class Generation:
    """The completions of one generation as the estimator sees them, before it records them.

    Attributes
    ----------
    packing : Packing
        Scored completion -> (row, column); a row is a prompt, or a group for baselines that compare within groups.
    groups : Groups, shape (P, G)
    visits : Visits, shape (P, V)
    own_weight : ndarray, broadcastable to (P, G)
        Derivative of each value in its own reward; 0 for leave-one-out baselines.
    effective : float or None
        Mean over rows of past completions, each weighted by ``K(lag / bandwidth) / K(0)``; None without a kernel.
    """

    packing: Packing
    groups: Groups
    visits: Visits | None
    own_weight: np.ndarray
    effective: float | None

    @classmethod
    def ahead(
        cls,
        estimator: AdvantageEstimator,
        ids: Sequence[Hashable],
        streams: Sequence[Hashable],
        rewards: np.ndarray,
        weights: np.ndarray | None,
        step: int,
    ) -> Generation:
        """Look at a generation with the estimator's state as it is; completions without a reward left out."""
        baseline = estimator.baseline
        packing = Packing.of(list(zip(ids, streams, strict=True)) if baseline.unit == "group" else ids)
        groups = Groups(
            reward=packing.pack(rewards),
            mask=packing.mask,
            weight=None if weights is None else packing.pack(weights),
            prompt_ids=packing.keys,
        )
        memory = baseline.horizon > 0
        seen = memory and estimator.history is not None
        visits = estimator.history.visits(packing.keys, step) if seen else Visits.empty(groups)
        # Of all baselines with a carry, only those without a history contain the completion's own reward.
        carry = None if memory else unpack_arrays(estimator.state_dict()["carry"])
        own_weight = np.asarray(baseline.own_weight(groups, visits, step=step, carry=carry), dtype=float)
        effective = _effective_history(baseline, groups, visits, step) if isinstance(baseline, KernelBaseline) else None
        return cls(packing, groups, visits if memory else None, own_weight, effective)

    def metrics(self, values: np.ndarray, advantages: np.ndarray) -> dict[str, float]:
        """The figures of one generation, NaN where there is nothing to measure.

        Parameters
        ----------
        values, advantages : ndarray, shape (N,)
            Of the scored completions, in the order of ``ids``.

        Returns
        -------
        dict
            ``error``: unbiased estimate of the mean squared error of the values around the prompts' true values,

                mean_g (Z_g - V_g)^2 - (1 - 2 mean_g c_g) S^2

            averaged over rows with two completions or more, where ``S^2`` is the row's sample variance of the rewards
            (ddof 1) and ``c_g`` the own weight. A leave-one-out value is independent of its own reward given the past,
            so ``E (Z_g - V_g)^2 = Var(Z) + MSE(V_g)``; a value with its own reward inside has the covariance
            ``c_g Var(Z)`` with it, which is added back twice. It can be negative: it is unbiased, not a square.
            ``squared_error``: ``mean_g (Z_g - V_g)^2``, averaged over all rows: the reward variance plus the error.
            ``nonzero_advantages``: share of completions whose advantage is not 0.
            With a history: ``known_prompts``, share of rows with a visit in reach; ``past_completions``, mean
            number of completions in those visits; and for kernel methods ``effective_history``.
        """
        groups, packing = self.groups, self.packing
        if not packing.keys:
            return {}
        present, count = groups.present, groups.count[:, 0]
        reward = np.where(present > 0, groups.reward, 0.0)
        loss = (present * (reward - packing.pack(values)) ** 2).sum(axis=1) / count
        mean = reward.sum(axis=1, keepdims=True) / count[:, None]
        squares = (present * (reward - mean) ** 2).sum(axis=1)
        several = count > 1
        variance = np.divide(squares, count - 1, out=np.full_like(squares, np.nan), where=several)
        own = (present * self.own_weight).sum(axis=1) / count
        risk = (loss - (1 - 2 * own) * variance)[several]
        found = {
            "error": float(risk.mean()) if several.any() else np.nan,
            "squared_error": float(loss.mean()),
            "nonzero_advantages": float((np.abs(advantages) > ZERO).mean()),
        }
        if self.visits is not None:
            past = self.visits.count.sum(axis=-1)
            found |= {"known_prompts": float((past > 0).mean()), "past_completions": float(past.mean())}
        if self.effective is not None:
            found["effective_history"] = self.effective
        return found


def _effective_history(baseline: KernelBaseline, groups: Groups, visits: Visits, step: int) -> float:
    total = 0.0
    for bandwidth, share in baseline.bandwidth.resolve(visits, groups.count, step=step, kernel=baseline.kernel):
        weight = baseline.kernel.weight(visits.lag / bandwidth, np) / baseline.kernel.at_zero
        total = total + share * (weight * visits.count).sum(axis=-1, keepdims=True)
    return float(np.mean(total))
