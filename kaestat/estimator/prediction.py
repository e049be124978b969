"""Predictions of prompts' values before they are sampled, from their history, with standard errors."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.kernel_mean import KernelBaseline
from kaestat.baselines.reward_range import RangedBaseline
from kaestat.core.arrays import Groups, Visits
from kaestat.core.weighted_noise import SUMS, moments, weighted_noise
from kaestat.history.fields import WEIGHTED_FIELDS
from kaestat.history.history import RewardHistory

ENOUGH_PROMPTS = 2  # to have a spread
MOST_PROMPTS = 2**16  # whose visits are used: more would add no information
ROUNDING = 1e-9  # of a sum, per completion


@dataclass(frozen=True)
class Population:
    """The prompts of a history as a population: the best guess for a prompt without any data."""

    n_prompts: int  # Number of prompts with a visit that were used; if it is 0, the other figures are meaningless
    mean: float  # Mean of the prompts' newest group means
    spread: float  # Variance of the prompts' values: the variance of their newest group means minus the noise
    # Variance of one reward within a prompt. Estimated within groups if some have two completions, otherwise from the
    # prompts' last two visits; without either, all variance counts as noise
    noise: float
    # Variance of the change of a prompt's value per step, from the last two visits of each prompt; 0 if the noise is
    # not known from within groups
    drift: float
    sums: tuple[float, float, float]  # Number of these completions; sums of their rewards, and of their squares
    # Means of completions' weights and weighted rewards (`kaestat.core.weighted_noise.moments`) over the prompts'
    # newest visits, each counting once; empty if completions have no weights
    means: tuple[float, ...] = ()
    bounds: tuple[float, float] = (-math.inf, math.inf)  # of the rewards, see `_bounds`
    center: float = 0.0  # What is subtracted from rewards in all these (`RewardHistory.center`)

    @property
    def binary(self) -> bool:
        """Whether all rewards are 0 or 1, if they lie between, up to rounding."""
        count, total, total_sq = self.sums
        return abs(total_sq - total) <= ROUNDING * count

    @property
    def of_prior(self) -> float:
        """Number of completions as informative about a prompt's value as the population; infinite if all are alike."""
        return self.noise / self.spread if self.spread > 0 else math.inf

    @classmethod
    def of(cls, history: RewardHistory | None) -> Population:
        """The population's moments, estimated with each prompt counting once."""
        if history is None or not len(history):
            return cls(0, 0.0, 0.0, 0.0, 0.0, (0.0, 0.0, 0.0))
        sums = history.newest(2, MOST_PROMPTS)
        count, total, total_sq = sums["count"], sums["total"], sums["total_sq"]
        here = count > 0
        n = np.where(here, count, 1.0)
        mean = total / n
        squares = np.clip(total_sq - total * mean, 0.0, None) * here
        freedom = np.sum((n - 1) * here)
        newest, last = mean[:, -1], n[:, -1]
        twice = here[:, 0]
        change, gap = newest[twice] - mean[twice, 0], np.diff(sums["step"][twice], axis=1)[:, 0]
        per_change = 1 / last[twice] + 1 / n[twice, 0]
        between = float(np.var(newest, ddof=1)) if len(newest) >= ENOUGH_PROMPTS else 0.0
        drift = 0.0
        if freedom > 0:
            noise = float(np.sum(squares) / freedom)
            drift = max(float(np.sum(change**2 - noise * per_change)), 0.0) / max(float(np.sum(gap)), 1.0)
        elif len(change):
            noise = float(np.sum(change**2) / np.sum(per_change))
        else:
            noise = between
        return cls(
            n_prompts=len(newest),
            mean=float(np.mean(newest)),
            spread=max(between - noise * float(np.mean(1 / last)), 0.0),
            noise=noise,
            drift=drift,
            sums=(float(np.sum(count)), float(np.sum(total)), float(np.sum(total_sq))),
            means=_means_of_newest(sums) if "weight" in sums else (),
            bounds=_bounds(count, total, total_sq),
            center=history.center,
        )

    def in_unit(self, low: float, high: float) -> Population:
        """The same population with its rewards mapped from ``[low, high]`` to [0, 1]."""
        if self.n_prompts == 0:
            return self
        low, high = low - self.center, high - self.center
        width, mean = high - low, min(max(self.mean, low), high)
        (count, total, total_sq), means = self.sums, self.means
        if means:
            means = (*means[:2], *_in_unit(means[0], means[2], means[3], low, width))
        return replace(
            self,
            mean=(mean - low) / width,
            spread=self.spread / width**2,
            noise=self.noise / width**2,
            drift=self.drift / width**2,
            sums=(count, *_in_unit(count, total, total_sq, low, width)),
            means=means,
            bounds=((self.bounds[0] - low) / width, (self.bounds[1] - low) / width),
            center=0.0,
        )


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicted values of prompts before a step, from `AdvantageEstimator.predict`."""

    prompt_ids: list[Hashable]  # length P; in the order of the call
    # shape (P,); the value of a completion that is alone in its group, moved into the range of the rewards: 0 to 1 if
    # the rewards seen can lie there, otherwise bounds of those seen. A trend (``sieve``, ``local_linear``, the drift of
    # ``kae_eb``) would leave it after a long gap; methods with ``low`` and ``high`` never do. For prompts without a
    # visit in reach it is the mean of the population, unless the method knows more about them (`Baseline.knows_unseen`)
    value: np.ndarray
    # shape (P,); number of equally informative current completions (`Baseline.effective_completions`); 0 without a
    # visit in reach
    effective_completions: np.ndarray
    # shape (P,); variance of one reward, from the prompt's own past and one completion's worth of the population
    reward_variance: np.ndarray
    lag: np.ndarray  # shape (P,); steps since the prompt's newest visit, ``inf`` for prompts never seen
    shrunk: bool  # Whether the values are posterior means already (`Baseline.shrinks`)
    population: Population
    # shape (P, 3); expected noise of weighted completions (`kaestat.core.weighted_noise.weighted_noise`); None without
    # weights
    weighted: np.ndarray | None = None

    @property
    def standard_error(self) -> np.ndarray:
        """Standard error of the value as an estimate of the expected reward, shape (P,).

        It is from noise alone, without drift since the last visit. For prompts without a visit in reach it is the
        spread of the population; ``inf`` if there is no population either.
        """
        population, size = self.population, self.effective_completions
        beyond = math.sqrt(population.spread) if population.n_prompts >= ENOUGH_PROMPTS else math.inf
        known = size > 0
        return np.where(known, np.sqrt(self.reward_variance / np.where(known, size, 1.0)), beyond)

    def in_unit(self, low: float, high: float) -> Prediction:
        """The same predictions with rewards mapped from ``[low, high]`` to [0, 1]; values outside are moved there."""
        width = high - low
        return replace(
            self,
            value=(np.clip(self.value, low, high) - low) / width,
            reward_variance=self.reward_variance / width**2,
            population=self.population.in_unit(low, high),
            weighted=None if self.weighted is None else self.weighted / (1.0, width**2, width**2),
        )


def predict(
    baseline: Baseline,
    history: RewardHistory | None,
    visits: Visits | None,
    carry: Any,
    keys: list[Hashable],
    step: int,
    *,
    reweighted: bool = False,
) -> Prediction:
    """Predictions of a baseline with a history from the prompts' past alone.

    ``history`` and ``visits`` are None before the first step; ``keys`` are the P distinct prompts. ``reweighted`` says
    that the weights are importance ratios alone: the expected reward is then the weighted mean of rewards.
    """
    nobody = np.zeros((len(keys), 1))
    groups = Groups(reward=nobody, mask=nobody > 0, prompt_ids=keys)
    visits = Visits.empty(groups) if visits is None else visits
    with_weights = visits
    if not reweighted:
        visits = replace(visits, **dict.fromkeys(WEIGHTED_FIELDS))  # the value is the plain mean reward
    population = Population.of(history)
    baseline = baseline.less(population.center)
    low, high = _range(baseline, population, visits)
    served = _with_population(baseline, population, population.mean).serve(groups, visits, step=step, carry=carry)
    size = served.settled.effective_completions(groups, visits, step=step, carry=carry)[:, 0]

    count = np.sum(visits.count, axis=-1)
    n = np.where(count > 0, count, 1.0)
    mean, mean_square = np.sum(visits.total, axis=-1) / n, np.sum(visits.total_sq, axis=-1) / n
    scatter = np.clip(mean_square - mean**2, 0.0, None)
    variance = (count * scatter + population.noise) / (count + 1)
    lag = np.min(np.where(visits.count > 0, visits.lag, math.inf), axis=-1, initial=math.inf)
    size = np.where(count > 0, size, 0.0)  # the count of a prior is not a past
    unknown = size <= 0
    from_population = unknown & (population.n_prompts > 0) & (not baseline.knows_unseen)
    weighted = None
    if population.means and not reweighted:
        weight, _, carried, _ = population.means
        mean = carried / weight if weight > 0 else population.mean
        of_weighted = _with_population(baseline, population, mean)
        groups = replace(groups, weight=nobody)
        best = of_weighted.serve(groups, with_weights, step=step, carry=carry).values[:, 0]
        best = np.where(from_population, mean, best)
        own = moments(count, {name: np.sum(getattr(with_weights, name), axis=-1) for name in SUMS})
        weighted = weighted_noise(count, own, population.means, population.of_prior, np.clip(best, low, high))
    return Prediction(
        prompt_ids=keys,
        value=np.where(from_population, population.mean, np.clip(served.values[:, 0], low, high)) + population.center,
        effective_completions=size,
        reward_variance=variance,
        lag=lag,
        shrunk=baseline.shrinks,
        population=population,
        weighted=weighted,
    )


def _in_unit(weight: float, total: float, total_sq: float, low: float, width: float) -> tuple[float, float]:
    """Weighted sums of rewards and of their squares, with rewards mapped from ``[low, low + width]`` to [0, 1]."""
    return (total - low * weight) / width, (total_sq - 2 * low * total + low**2 * weight) / width**2


def _with_population(baseline: Baseline, population: Population, mean: float) -> Baseline:
    """A kernel baseline with a mean of the population for that of a step's other prompts: nobody is there."""
    if isinstance(baseline, KernelBaseline) and population.n_prompts > 0:
        return baseline.with_population(mean)
    return baseline


def _range(baseline: Baseline, population: Population, visits: Visits) -> tuple[float, float]:
    """Range of the rewards seen, which no mean reward leaves; infinite ends before the first visit."""
    if isinstance(baseline, RangedBaseline):  # its values lie in its own range
        return -math.inf, math.inf
    ends = population.bounds, _bounds(visits.count, visits.total, visits.total_sq)
    (low, high), (own_low, own_high) = (end if math.isfinite(end[0]) else ends[1 - k] for k, end in enumerate(ends))
    return min(low, own_low), max(high, own_high)


def _bounds(count: np.ndarray, total: np.ndarray, total_sq: np.ndarray) -> tuple[float, float]:
    """0 and 1 if rewards with these sums can lie there, else bounds from each visit's mean and variance.

    No number of n lies further from their mean than ``sqrt(n - 1)`` of their standard deviations (Samuelson, 1968).
    """
    here = count > 0
    n, total, total_sq = count[here], total[here], total_sq[here]
    if not len(n):
        return -math.inf, math.inf
    if np.all((total >= 0) & (total_sq <= total)):
        return 0.0, 1.0
    mean = total / n
    reach = np.sqrt((n - 1) * np.clip(total_sq / n - mean**2, 0.0, None))
    return float(np.min(mean - reach)), float(np.max(mean + reach))


def _means_of_newest(sums: dict[str, np.ndarray]) -> tuple[float, ...]:
    newest = {name: array[:, -1] for name, array in sums.items()}
    return tuple(np.mean(moments(newest["count"], newest), axis=0).tolist())
