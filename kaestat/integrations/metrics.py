"""What every adapter logs of a step: how good the baseline was, and how much past went into it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kaestat.advantage import AdvantageEstimator
from kaestat.arrays import Groups, Visits
from kaestat.baselines.base import Baseline
from kaestat.baselines.kae import KernelBaseline
from kaestat.kernels import as_kernel
from kaestat.packing import Packing

ZERO = 1e-6  # advantages this small are rounding: trainers hold them in float32


@dataclass(frozen=True, eq=False)
class StepMetrics:
    """What an estimator knew before a step, from which the figures of the step follow once its rewards are in.

    Attributes
    ----------
    baseline : Baseline
    step : int
        Training step, 0-based.
    packing : Packing
        Completion -> (row, column); a row is a prompt, or a group for baselines that compare within groups.
    past : Visits or None, shape (P, V)
        None before the first step, and for baselines without a history.
    carry : dict or None
        The estimator's state beyond its history.
    """

    baseline: Baseline
    step: int
    packing: Packing
    past: Visits | None
    carry: dict[str, np.ndarray] | None

    @classmethod
    def before(
        cls,
        estimator: AdvantageEstimator,
        ids: Sequence[Hashable],
        step: int,
        streams: Sequence[Hashable] | None = None,
    ) -> StepMetrics:
        """Look at the estimator before it is given the step.

        Parameters
        ----------
        estimator : AdvantageEstimator
        ids : sequence of hashables, length N
            The prompt of each completion; padding left out.
        step : int
        streams : sequence of hashables, length N, optional
            As ``stream_ids`` of `AdvantageEstimator.step`.
        """
        baseline, history = estimator.baseline, estimator.history
        kept_apart = None if streams is None or baseline.unit == "prompt" else streams
        packing = Packing.of(ids if kept_apart is None else list(zip(ids, kept_apart, strict=True)))
        # Unlike `visits`, this lets a repeated step pass: the estimator refuses it with a message of its own.
        past = None if history is None else history.visits_of_rows(history.rows(packing.keys), step)
        return cls(baseline, step, packing, past, estimator.carry)

    def after(
        self, rewards: np.ndarray, values: np.ndarray, advantages: np.ndarray, weights: np.ndarray | None = None
    ) -> dict[str, float]:
        """The figures of the step; one that has nothing to be measured on is left out.

        Parameters
        ----------
        rewards, values, advantages : ndarray, shape (N,)
            Of the completions, in the order of ``ids``.
        weights : ndarray, shape (N,), optional

        Returns
        -------
        dict
            ``error``: unbiased estimate of the mean squared error of the values around the prompts' true values,

                mean_g (Z_g - V_g)^2 - (1 - 2 mean_g c_g) S^2

            averaged over rows with two completions or more, where ``S^2`` is the row's sample variance of the rewards
            (ddof 1) and ``c_g`` the derivative of the value in its own reward. A leave-one-out value is independent of
            its own reward given the past, so ``E (Z_g - V_g)^2 = Var(Z) + MSE(V_g)``; a value with its own reward
            inside has the covariance ``c_g Var(Z)`` with it, which is added back twice. It can be negative: it is
            unbiased, not a square.
            ``squared_error``: ``mean_g (Z_g - V_g)^2``, averaged over all rows: the reward variance plus the error.
            ``nonzero_advantages``: share of completions whose advantage is not 0.
            With a history: ``known_prompts``, share of rows with a visit in reach; ``past_completions``, mean
            number of completions in those visits; and for kernel methods ``effective_history``, the same with each
            completion weighted by ``K(lag / bandwidth) / K(0)``.
        """
        packing, baseline = self.packing, self.baseline
        if not packing.keys:
            return {}
        groups = Groups(
            reward=packing.pack(rewards),
            mask=packing.mask,
            weight=None if weights is None else packing.pack(weights),
            prompt_ids=packing.keys,
        )
        visits = Visits.empty(groups) if self.past is None else self.past
        present, count = groups.present, groups.count[:, 0]
        loss = (present * (groups.reward - packing.pack(values)) ** 2).sum(axis=1) / count
        found = {
            "squared_error": float(loss.mean()),
            "nonzero_advantages": float((np.abs(advantages) > ZERO).mean()),
        }
        several = count > 1
        if several.any():
            own = np.asarray(baseline.own_weight(groups, visits, step=self.step, carry=self.carry), dtype=float)
            own = (present * own).sum(axis=1) / count
            risk = loss[several] - (1 - 2 * own[several]) * _variance(groups)[several]
            found["error"] = float(risk.mean())
        if baseline.horizon > 0:
            completions = visits.count.sum(axis=-1)
            found |= {"known_prompts": float((completions > 0).mean()), "past_completions": float(completions.mean())}
        if isinstance(baseline, KernelBaseline):
            found["effective_history"] = _effective_history(baseline, groups, visits, self.step, self.carry)
        return found


def _variance(groups: Groups) -> np.ndarray:
    """Sample variance (ddof 1) of each row's rewards, shape (P,); 0 for a lone completion."""
    present, count = groups.present, groups.count
    mean = (present * groups.reward).sum(axis=1, keepdims=True) / count
    squares = (present * (groups.reward - mean) ** 2).sum(axis=1)
    return squares / np.maximum(count[:, 0] - 1, 1)


def _effective_history(baseline: KernelBaseline, groups: Groups, visits: Visits, step: int, carry: Any) -> float:
    total, kernel = 0.0, as_kernel(baseline.kernel)
    for bandwidth, share in baseline.mixture(groups, visits, step=step, carry=carry):
        weight = kernel.weight(visits.lag / bandwidth, groups.xp) / kernel.at_zero
        total = total + share * (weight * visits.count).sum(axis=-1, keepdims=True)
    return float(np.mean(total))
