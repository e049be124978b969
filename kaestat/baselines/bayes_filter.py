"""A Bayes filter of every prompt's value that learns from all prompts how values move, jump and are spread."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from array_api_compat import device

from kaestat.baselines.base import Served
from kaestat.baselines.filter_belief import PARTS, TINY, Belief, Moving, log_evidence
from kaestat.baselines.filter_population import Population, first_carry, moments
from kaestat.baselines.filter_rates import AGES, SHOCK, Rates, plain_rates
from kaestat.baselines.reward_range import RangedBaseline
from kaestat.core.arrays import Array, Groups, Visits, namespace

BLOCK = 4096  # prompts whose arrays fit the processor's cache


@dataclass(frozen=True)
class BayesFilter(RangedBaseline):
    """Posterior mean of the prompt's value, given its past, the rest of its group and what all prompts have shown.

    TODO

    Parameters
    ----------
    low, high : float
        Range of the rewards to begin with; see `RangedBaseline`. Rewards beyond it widen it, and a warning says so once.

    Raises
    ------
    ValueError
        If ``low`` is not below ``high``.
    """

    stepwise: ClassVar[bool] = True
    shrinks: ClassVar[bool] = True

    @property
    def horizon(self) -> float:
        return float("inf")

    @property
    def max_visits(self) -> float:
        return 1

    @property
    def pools_prompts(self) -> bool:
        return True

    @property
    def state_size(self) -> int:
        return PARTS * plain_rates().variance.shape[0]

    def initial_carry(self) -> dict[str, np.ndarray]:
        """What `Population` learns; the last step that scored; the range of the rewards."""
        fresh = {name: np.array(array) for name, array in first_carry(plain_rates()).items()}
        return fresh | {"last_scored": np.array(-1.0), "range": np.array([self.low, self.high])}

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        return self.serve(groups, visits, step=step, carry=carry).values

    def advance(self, carry: Any, groups: Groups, visits: Visits, *, step: int | Array) -> dict[str, Array]:
        return self.serve(groups, visits, step=step, carry=carry).carry

    def serve(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Served:
        now = _Now.of(self, groups, visits, step, carry)
        xp, known = groups.xp, now.population.moving()
        belief = [now.belief(visits, known, rows) for rows in now.blocks]
        return now.served(self, belief, known)

    def effective_completions(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        """``p (1 - p) / u - 1`` of the posterior's mean p and variance u, those of a Beta distribution."""
        now = _Now.of(self, groups, visits, step, carry)
        known = now.population.moving()
        found = []
        for rows in now.blocks:
            belief = now.belief(visits, known, rows)
            found.append(_spread(belief, known)[1] * known.dispersion[..., 0, :])
        size = found[0] if len(found) == 1 else groups.xp.concat(found, axis=-1)
        return groups.xp.astype(size, groups.reward.dtype)[..., None]


@dataclass(frozen=True, eq=False)
class _Now:
    """One step: its completions on the unit scale, and what earlier steps say.

    Attributes
    ----------
    groups : Groups
    unit : array, shape (..., P, G)
        Rewards, 0 in the padding.
    low, width : array, shape (..., P) or (..., 1)
        Range of the rewards, of each prompt from the others alone.
    rates : Rates
    population : Population
    returning, scored : boolean array, shape (..., P)
        Prompts with a past, and those of them that count for what is learned.
    shape : tuple of int
        (..., P).
    carry : dict of array
    last_scored : array, shape (...,)
    """

    groups: Groups
    unit: Array
    low: Array
    width: Array
    rates: Rates
    population: Population
    returning: Array
    scored: Array
    shape: tuple[int, ...]
    carry: dict[str, Array]
    last_scored: Array

    @classmethod
    def of(cls, baseline: BayesFilter, groups: Groups, visits: Visits, step: int | Array, carry: Any) -> _Now:
        xp, reward = groups.xp, groups.reward
        before = baseline.initial_carry() if carry is None else carry
        before = {name: as_type_of(array, reward) for name, array in before.items()}
        step = as_type_of(step, reward)
        step = step[..., 0, 0] if step.ndim >= 2 else step
        shape = np.broadcast_shapes((*groups.leading, reward.shape[-2]), visits.lag.shape[:-1])
        newest = xp.full_like(reward[..., 0], np.inf)
        if visits.lag.shape[-1]:
            newest = xp.min(xp.where(visits.count > 0, visits.lag, xp.full_like(visits.count, np.inf)), axis=-1)
        returning = newest < np.inf
        scored = returning if groups.among is None else returning & groups.among[..., 0]
        elapsed, returns = _elapsed(step, newest, scored, before["last_scored"])
        low, width = _range(groups, before["range"])
        unit = xp.clip((reward - low[..., None]) / width[..., None], 0.0, 1.0)
        unit = unit if groups.mask is None else xp.where(groups.mask, unit, xp.zeros_like(unit))
        rates = Rates.of(reward)
        return cls(
            groups=groups,
            unit=unit,
            low=low,
            width=width,
            rates=rates,
            population=Population.of(rates, before, elapsed),
            returning=returning,
            scored=scored,
            shape=shape,
            carry=before,
            last_scored=xp.where(returns > 0, step, before["last_scored"]),
        )

    @property
    def blocks(self) -> list[slice]:
        """Rows of so many prompts that their arrays stay in the processor's cache."""
        *leading, n_prompts = self.shape
        largest = max(BLOCK // max(math.prod(leading), 1), BLOCK // 64)
        size = math.ceil(n_prompts / max(math.ceil(n_prompts / largest), 1)) or 1
        return [slice(first, first + size) for first in range(0, max(n_prompts, 1), size)]

    def coarse(self, array: Array) -> Array:
        """In the precision of beliefs, with an axis for the hypotheses."""
        return self.groups.xp.astype(array, self.rates.variance.dtype, copy=False)[..., None, :]

    def belief(self, visits: Visits, known: Moving, rows: slice) -> Belief:
        """Of some prompts at their present visit: from what is kept of them, or else from their visits anew."""
        returning = self.returning[..., rows]
        leading = self.shape[:-1]
        unknown = Belief.unknown(self.rates, (*leading, returning.shape[-1]))
        if visits.lag.shape[-1] == 0 or not bool(self.groups.xp.any(returning)):
            return unknown
        if visits.state is not None:
            kept = Belief.unpacked(as_type_of(visits.state[..., rows, :], self.rates.variance))
            kept = self.on_range(kept, rows)
            return kept.where(returning, unknown).moved(self.rates, known).where(returning, unknown)
        xp, belief = self.groups.xp, unknown
        before = xp.zeros_like(visits.count[..., rows, 0]) > 0
        for column in range(visits.count.shape[-1]):
            here = visits.count[..., rows, column] > 0
            count, total = (self.coarse(part[..., rows, column]) for part in (visits.count, visits.total))
            low, width = self.coarse(_rows(self.low, rows)), self.coarse(_rows(self.width, rows))
            total = xp.minimum(xp.clip((total - low * count) / width, 0.0, None), count)
            moved = belief.moved(self.rates, known).where(before, belief)
            belief = _updated(moved, known, count, total).where(here, belief)
            before = before | here
        return belief.moved(self.rates, known).where(returning, unknown)

    def on_range(self, kept: Belief, rows: slice) -> Belief:
        """What is kept has rewards as they came; here they lie in [0, 1]."""
        xp = self.groups.xp
        if self._is_unit:
            return kept
        low, width = self.coarse(_rows(self.low, rows)), self.coarse(_rows(self.width, rows))
        total = (kept.total - low * kept.count) / width
        return replace(kept, total=xp.minimum(xp.clip(total, 0.0, None), kept.count))

    @property
    def _is_unit(self) -> bool:
        return bool(self.groups.xp.all((self.low == 0) & (self.width == 1)))

    def served(self, baseline: BayesFilter, beliefs: list[Belief], known: Moving) -> Served:
        """Values, carry and state."""
        groups, xp, unit = self.groups, self.groups.xp, self.unit
        fine = unit.dtype
        count, total = groups.count[..., 0], xp.sum(unit, axis=-1)
        own = [(self.coarse(_rows(count, rows)), self.coarse(_rows(total, rows))) for rows in self.blocks]
        shock, shock_all = self.shock(beliefs, known, own)
        probability = [belief.probabilities(known) for belief in beliefs]
        past = self.past_of(beliefs, probability)
        dispersion = self.population.dispersion[..., 0]
        each = moments(past[0] + count, past[1] + total, dispersion)
        sums, prior = self.population.joined(each, groups)
        values, packed, learned = [], [], []
        for rows, belief, (n, s) in zip(self.blocks, beliefs, own, strict=True):
            here = replace(known, a=self.coarse(_rows(prior[0], rows)), b=self.coarse(_rows(prior[1], rows)))
            asked = belief
            if shock is not None:
                asked, here = _shocked(belief, known, here, self.coarse(_rows(shock, rows)))
            values.append(self.values_of(asked, here, rows, n, s))
            if shock is not None:
                belief, here = _shocked(belief, known, here, self.coarse(_rows(shock_all, rows)))
            evidence = log_evidence(*belief.beta(here), n / here.dispersion, s / here.dispersion)
            after = belief.with_group(n, s, evidence, here)
            learned.append(self.learned(belief, after, evidence, here, rows))
            packed.append(self.as_they_came(after, rows).packed())
        of_all = {name: sum(part[name] for part in learned) for name in learned[0]}
        of_all |= {"dispersion": self.dispersion_sums(past)}
        carry = self.population.after(of_all)
        carry |= {"population": sums, "last_scored": self.last_scored, "range": _widened(groups, self.carry["range"])}
        _warn_if_widened(baseline, self.carry["range"], carry["range"])
        value = values[0] if len(values) == 1 else xp.concat(values, axis=-2)
        value = self.low[..., None] + self.width[..., None] * xp.astype(value, fine)
        state = packed[0] if len(packed) == 1 else xp.concat(packed, axis=-2)
        return Served(values=value, carry=carry, settled=baseline, state=state)

    def past_of(self, beliefs: list[Belief], probability: list[Array]) -> tuple[Array, Array]:
        """Completions and rewards of each prompt's past, averaged over the hypotheses; (..., P) each."""
        xp = self.groups.xp
        parts = []
        for name in ("count", "total"):
            each = [xp.sum(w * getattr(b, name), axis=-2) for w, b in zip(probability, beliefs, strict=True)]
            parts.append(xp.astype(each[0] if len(each) == 1 else xp.concat(each, axis=-1), self.unit.dtype))
        return parts[0], parts[1]

    def values_of(self, belief: Belief, known: Moving, rows: slice, count: Array, total: Array) -> Array:
        """Values on the unit scale of each completion of some prompts, its own reward left out; (..., P, G)."""
        xp, unit = self.groups.xp, self.unit[..., rows, :]
        distinct = xp.unique_values(unit)
        few = distinct.shape[0] < unit.shape[-1]
        columns = distinct.shape[0] if few else unit.shape[-1]
        a, b = belief.beta(known)
        weight = belief.probabilities(known)
        alone = bool(xp.max(count) <= 1) if count.shape[-1] else True
        others = xp.clip(count - 1, 0.0, None) / known.dispersion
        found = []
        for column in range(columns):
            reward = distinct[column] if few else unit[..., column]
            rest = xp.clip(total - self.coarse(reward + 0 * unit[..., 0]), 0.0, None)
            rest = xp.minimum(rest / known.dispersion, others)
            likely = weight
            if not alone:
                log = log_evidence(a, b, others, rest)
                likely = weight * xp.exp(log - xp.max(log, axis=-2, keepdims=True)) + TINY
            mean = xp.sum(likely * ((a + rest) / (a + b + others)), axis=-2) / xp.sum(likely, axis=-2)
            found.append(mean)
        each = xp.stack(found, axis=-1)
        if not few:
            return each
        place = xp.broadcast_to(xp.searchsorted(distinct, unit), (*each.shape[:-1], unit.shape[-1]))
        return xp.take_along_axis(each, place, axis=-1)

    def learned(self, belief: Belief, after: Belief, evidence: Array, known: Moving, rows: slice) -> dict[str, Array]:
        """What the returns of some prompts tell of how values move."""
        xp = self.groups.xp
        ways = evidence[..., :-AGES, :]
        gained = xp.exp(ways - xp.max(ways, axis=-2, keepdims=True))
        here = self.coarse(xp.astype(_rows(self.scored, rows), self.unit.dtype))
        jumped = after.odds[..., -1, :]
        jumped = xp.where(jumped > 0, jumped, xp.ones_like(jumped))
        probability = after.probabilities(known)[..., :-AGES, :]
        return self.population.learned_from(belief.odds[..., :-AGES, :], gained, probability, jumped, here)

    def as_they_came(self, belief: Belief, rows: slice) -> Belief:
        """With rewards on their own scale."""
        if self._is_unit:
            return belief
        low, width = self.coarse(_rows(self.low, rows)), self.coarse(_rows(self.width, rows))
        return replace(belief, total=belief.total * width + low * belief.count)

    def dispersion_sums(self, past: tuple[Array, Array]) -> Array:
        """Squares of rewards around their mean, and ``u (1 - u)`` of as many; (..., 2).

        Around the mean of the group, or where a prompt has one completion around that of its past.
        """
        groups, unit, xp = self.groups, self.unit, self.groups.xp
        count = groups.count[..., 0]
        size = xp.clip(count, 1.0, None)
        total = xp.sum(unit, axis=-1)
        off = (unit - (total / size)[..., None]) * groups.present
        within = xp.sum(off * off, axis=-1)
        mixed = (count - 1) / size * xp.sum(unit * (1 - unit), axis=-1)
        known = past[0] > 0
        n = xp.where(known, past[0], 1.0)
        share = xp.where(known & (count == 1), n / (n + 1), 0.0)
        within = within + share * (total - past[1] / n) ** 2
        mixed = xp.where(count > 1, mixed, share * total * (1 - total))
        return groups.pooled(xp.stack([within, mixed], axis=-1))[..., 0, :]

    def shock(self, beliefs: list[Belief], known: Moving, own: list[tuple[Array, Array]]) -> tuple[Any, Any]:
        """By how many logits all values have moved at once: of each prompt as the others say, and as all say.

        (..., P) and (..., 1); None where nobody says so.
        """
        xp, rates = self.groups.xp, self.rates
        if not bool(xp.any(self.scored)):
            return None, None
        gains = []
        for rows, belief, (n, s) in zip(self.blocks, beliefs, own, strict=True):
            mean, size = _spread(belief, known)
            inflated = known.dispersion[..., 0, :] + n[..., 0, :] / xp.clip(size, 0.05, None)
            inflated = (inflated / (1 + 1 / xp.clip(size, 0.05, None)))[..., None, :]
            mean = xp.clip(mean, 1e-6, 1 - 1e-6)[..., None, :]
            more = xp.log(1 + mean * (xp.exp(rates.shock) - 1))
            gain = (s * rates.shock - n * more) / inflated
            gains.append(gain * self.coarse(xp.astype(_rows(self.scored, rows), self.unit.dtype)))
        gain = gains[0] if len(gains) == 1 else xp.concat(gains, axis=-1)
        gain = xp.astype(gain, self.unit.dtype)
        pooled = xp.sum(gain, axis=-1, keepdims=True)
        of_each, of_all = _mean_shock(pooled - gain, rates), _mean_shock(pooled, rates)
        if not bool(xp.any(of_each != 0)) and not bool(xp.any(of_all != 0)):
            return None, None
        return of_each, of_all


def as_type_of(array: Any, model: Array) -> Array:
    """``array`` in the kind, floating type and device of the model."""
    return namespace(model).asarray(array, dtype=model.dtype, device=device(model))


def _updated(belief: Belief, known: Moving, count: Array, total: Array) -> Belief:
    evidence = log_evidence(*belief.beta(known), count / known.dispersion, total / known.dispersion)
    return belief.with_group(count, total, evidence, known)


def _shocked(belief: Belief, known: Moving, here: Moving, by: Array) -> tuple[Belief, Moving]:
    """A belief after a move of all values by so many logits, and the prior that goes with it."""
    xp = namespace(by)
    size = known.a + known.b
    factor = xp.exp(by)
    a = size * known.a * factor / (known.b + known.a * factor)
    after = replace(known, a=a, b=size - a)
    moved = by != 0
    shifted = belief.shifted(known, by, after)
    belief = replace(
        belief,
        count=xp.where(moved, shifted.count, belief.count),
        total=xp.where(moved, shifted.total, belief.total),
    )
    return belief, replace(here, a=xp.where(moved, after.a, here.a), b=xp.where(moved, after.b, here.b))


def _mean_shock(gain: Array, rates: Rates) -> Array:
    """Mean of the posterior of a shock where there more likely is one than not, else 0; (..., S, P) to (..., P)."""
    xp = namespace(gain)
    shock = xp.astype(rates.shock, gain.dtype)
    gain = gain + math.log(SHOCK / (1 - SHOCK) / shock.shape[0])
    best = xp.clip(xp.max(gain, axis=-2, keepdims=True), 0.0, None)
    weight = xp.exp(gain - best)
    some = xp.sum(weight, axis=-2)
    none = xp.exp(-best[..., 0, :])
    return xp.where(some > none, xp.sum(weight * shock, axis=-2) / xp.where(some > 0, some, 1.0), 0.0)


def _spread(belief: Belief, known: Moving) -> tuple[Array, Array]:
    """Mean of each prompt's posterior, and the size of the Beta distribution with its mean and variance; (..., P)."""
    xp = namespace(belief.count)
    a, b = belief.beta(known)
    size, weight = a + b, belief.probabilities(known)
    mean = a / size
    middle = xp.sum(weight * mean, axis=-2)
    off = mean - middle[..., None, :]
    variance = xp.sum(weight * (mean * (1 - mean) / (size + 1) + off * off), axis=-2)
    return middle, middle * (1 - middle) / xp.clip(variance, 1e-12, None) - 1


def _elapsed(step: Array, newest: Array, scored: Array, last: Array) -> tuple[Array, Array]:
    """Returns of the prompts since the last step at which some returned, and how many return now."""
    xp = namespace(newest)
    lag = xp.where(scored, newest, xp.zeros_like(newest))
    returns = xp.sum(xp.astype(scored, lag.dtype), axis=-1)
    mean_lag = xp.where(returns > 0, xp.sum(lag, axis=-1) / xp.clip(returns, 1.0, None), 1.0)
    since = xp.where((last >= 0) & (returns > 0), xp.clip(step - last, 0.0, None), 0.0)
    return since / mean_lag, returns


def _range(groups: Groups, known: Array) -> tuple[Array, Array]:
    """Lowest reward and width of the range for each prompt, from earlier steps and the other prompts; (..., P or 1)."""
    xp, reward = groups.xp, groups.reward
    low, high = known[..., :1], known[..., 1:]
    own_low, own_high = _ends(groups)
    if not bool(xp.any(own_low < low) | xp.any(own_high > high)):
        return low, high - low
    low = xp.minimum(low, _least_of_others(own_low))
    high = xp.maximum(high, -_least_of_others(-own_high))
    return low + 0 * reward[..., 0], high - low


def _ends(groups: Groups) -> tuple[Array, Array]:
    """Least and largest reward of each prompt; (..., P)."""
    xp, reward = groups.xp, groups.reward
    here = groups.present > 0 if groups.among is None else (groups.present > 0) & groups.among
    least = xp.where(here, reward, xp.full_like(reward, np.inf))
    most = xp.where(here, reward, xp.full_like(reward, -np.inf))
    return xp.min(least, axis=-1), xp.max(most, axis=-1)


def _least_of_others(least: Array) -> Array:
    xp = namespace(least)
    if least.shape[-1] < 2:  # noqa: PLR2004 (there are no others)
        return xp.full_like(least, np.inf)
    ordered = xp.sort(least, axis=-1)
    return xp.where(least == ordered[..., :1], ordered[..., 1:2], ordered[..., :1])


def _widened(groups: Groups, known: Array) -> Array:
    xp = groups.xp
    low, high = _ends(groups)
    if low.shape[-1] == 0:
        return known
    return xp.stack(
        [xp.minimum(known[..., 0], xp.min(low, axis=-1)), xp.maximum(known[..., 1], xp.max(high, axis=-1))], axis=-1
    )


def _warn_if_widened(baseline: BayesFilter, before: Array, after: Array) -> None:
    xp = namespace(before)
    given = xp.all(before == as_type_of([baseline.low, baseline.high], before))
    if bool(given) and bool(xp.any(before != after)):
        low, high = float(xp.min(after[..., 0])), float(xp.max(after[..., 1]))
        warnings.warn(
            f"rewards: bayes_filter was made for rewards in [{baseline.low:g}, {baseline.high:g}], and they reach from "
            f"{low:g} to {high:g}. It goes on with the range that it sees; state it with low= and high=.",
            stacklevel=2,
        )


def _rows(array: Array, rows: slice) -> Array:
    """Of some prompts, (..., P); an array that is the same for all prompts has one."""
    return array if array.shape[-1] == 1 else array[..., rows]
