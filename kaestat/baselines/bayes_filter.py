"""A Bayes filter of every prompt's value. It learns from all prompts how values drift, jump and spread."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import device

from kaestat.baselines.base import Served
from kaestat.baselines.filter_arrays import Scale, as_type_of, elapsed, joined, of_rows, summed, together
from kaestat.baselines.filter_belief import PARTS, Belief, Moving
from kaestat.baselines.filter_group import likely_of_group, values_of_any, values_of_binary
from kaestat.baselines.filter_population import MOMENTS, Population, first_carry, moments, squares_of, zeros_and_ones
from kaestat.baselines.filter_range import lies_outside, plain_means, say_widened, widened
from kaestat.baselines.filter_rates import Rates, plain_rates
from kaestat.baselines.filter_shock import NOTHING_LEFT, Left, before_step, common_shock, posterior_mean, shocked
from kaestat.baselines.reward_range import RangedBaseline
from kaestat.core.arrays import Array, Groups, Visits, broadcast_shapes, not_negative

_Believed = tuple[list[Belief], list[Array], list[tuple[Array, Array]], Moving]  # See `_Now.believed`
BLOCK = 4128  # prompts whose arrays fit the processor's cache
ALIGNED = 16  # numbers of single precision in a line of the cache


@dataclass(frozen=True)
class BayesFilter(RangedBaseline):
    """Posterior mean of the prompt's value, given its past, the rest of its group and the learned population.

    Each prompt's success rate V has a Beta distribution for each of 14 hypotheses about its moves from visit to visit,
    on the logit scale: 6 walks, 6 drifts of its own, and a jump one or two visits ago, which redraws it. The past
    counts as n completions with s successes, and a remaining share rho of the prior Beta(a, b); f = V (1 - V)::

        V = sum_h w_h (rho a + s / phi + S) / (rho (a + b) + n / phi + N),    w_h ~ w_h Pr(S of N | h)
        a walk of variance q^2:   (n, s) <- (n, s) / (1 + q^2 f n)
        then the group:           (n, s) <- (n, s) + the group's

    with S of N the rest of the group, divided by the dispersion phi. A walk divides the precision J of a logit by
    ``1 + q^2 J``, as in a Kalman filter. A drift moves the mean of the past and leaves J. q and drifts are relative to
    the noise of a reward, sqrt(phi). This is the conjugate updating of West, Harrison and Migon (1985) with the
    interacting models of Blom and Bar-Shalom (1988), which are mixed by weighted means of n and s. What is learned:

    - *How all prompts move*: probabilities of the hypotheses, by predictive likelihoods pooled over prompts and
      discounted by 0.9 per return, for three cases: all prompts but 2 % move alike; they are spread over
      the hypotheses as in the past; each has its own drift. *How a prompt moves*: by its own past.
    - *How often values jump*, by the same likelihoods.
    - *How values are spread*, the Beta prior: by moments from the other prompts of the step, including their groups,
      and from earlier prompts if there are fewer than 100 (as in `KaeEb`).
    - *A shock* moves all values at once. The other prompts of the same step show it, and the next steps correct the
      estimate (`common_shock`).
    - *The dispersion* phi: variance of a reward relative to V (1 - V), from the variance within groups and of single
      rewards around their past, discounted; exactly 1 for rewards of 0 and 1. At the first step that shows it, each
      prompt takes the dispersion of the other prompts. Other prompts with zeros and ones alone discount the dispersion
      of earlier steps by 0.97 per reward; the past keeps its worth. Other rewards in [low, high] count as shares of
      a success (quasi-likelihood; Wedderburn, 1974).

    Nothing depends on the completion's own reward: it learns from earlier steps or other prompts. Time is
    counted in visits, so it does not matter whether prompts return at every step or every sixty.

    State: 56 numbers of single precision for each prompt. Rounding moves values by 6e-6 or less (root mean square).

    Parameters
    ----------
    low, high : float
        Initial range of the rewards; see `RangedBaseline`. Rewards outside widen it, with one warning.
        Clip rare rewards that lie far from all others.

    Raises
    ------
    ValueError
        If ``low`` is not below ``high``.
    """

    stepwise: ClassVar[bool] = True
    shrinks: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True

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
        """What `Population` learns, the last scored step, the range given, and that of the rewards in its unit."""
        fresh = {name: np.array(array) for name, array in (first_carry(plain_rates()) | self._added).items()}
        return fresh | {"last_scored": np.array(-1.0), "range": np.array([0.0, 1.0])}

    @property
    def _added(self) -> dict[str, np.ndarray]:
        """What carries of earlier versions lack; they start without a shock."""
        return NOTHING_LEFT | {"given": np.array([self.low, self.high])}

    def accepts_carry(self, carry: dict[str, np.ndarray] | None) -> bool:
        whole, given = self._added | (carry or {}), self._added["given"]
        return super().accepts_carry(whole) and np.allclose(whole["given"], given, atol=0, rtol=1e-6)

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        return self.serve(groups, visits, step=step, carry=carry).values

    def advance(self, carry: Any, groups: Groups, visits: Visits, *, step: int | Array) -> dict[str, Array]:
        return self.serve(groups, visits, step=step, carry=carry).carry

    def serve(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Served:
        now = _Now.of(self, groups, visits, step, carry)
        untold = now.believed()
        return now.served(self, untold, *now.told_by_others(untold))

    def effective_completions(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        """``p (1 - p) / u - 1`` for posterior mean p and variance u, as for a Beta distribution."""
        now = _Now.of(self, groups, visits, step, carry)
        _, (_, _, means, known) = now.told_by_others(now.believed())
        dispersions = (known.of(rows).dispersion[..., 0, :] for rows in now.blocks)
        found = [size * dispersion for (_, size), dispersion in zip(means, dispersions, strict=True)]
        return groups.xp.astype(joined(found), groups.reward.dtype)[..., None]


@dataclass(frozen=True, eq=False)
class _Now:
    """One step: its completions on the unit scale, and what earlier steps say."""

    groups: Groups
    visits: Visits  # Both with rewards for which the range that was given is [0, 1]
    unit: Array  # shape (..., P, G); rewards, 0 in the padding
    plain: Array  # shape (..., P); whether all of a prompt's are 0 or 1, and whole completions
    binary: bool  # Whether that is so for all prompts
    low: Array  # shape (..., 1); range of the rewards of earlier steps
    width: Array
    is_unit: bool  # Whether that is [0, 1], and whether a reward lies outside of it
    outside: bool
    rates: Rates
    population: Population
    returning: Array  # shape (..., P); prompts with a past, and those of them that count for what is learned
    scored: Array
    all_scored: bool
    shape: tuple[int, ...]  # (..., P)
    carry: dict[str, Array]
    last_scored: Array  # shape (...,)
    since: Array  # shape (..., 1); returns of the prompts since that step, 1 at most or where there is none
    of_last_step: Array  # shape (..., P); prompts whose last visit was at that step

    @classmethod
    def of(cls, baseline: BayesFilter, groups: Groups, visits: Visits, step: int | Array, carry: Any) -> _Now:
        groups, visits = baseline.to_unit(groups, visits)
        xp, reward = groups.xp, groups.reward
        before = baseline.initial_carry() if carry is None else baseline._added | carry
        before = {name: as_type_of(array, reward) for name, array in before.items()}
        step = as_type_of(step, reward)
        step = step[..., 0, 0] if step.ndim >= 2 else step
        if visits.lag.shape[-1]:
            newest = xp.where(visits.count > 0, visits.lag, np.inf)
            newest = newest[..., 0] if newest.shape[-1] == 1 else xp.min(newest, axis=-1)
        else:
            newest = xp.full_like(reward[..., 0] if reward.shape[-1] else groups.count[..., 0], np.inf)
        returning = newest < np.inf
        scored = returning if groups.among is None else returning & groups.among[..., 0]
        since, returns = elapsed(step, newest, scored, before["last_scored"])
        low, width = before["range"][..., :1], before["range"][..., 1:] - before["range"][..., :1]
        rates, is_unit = Rates.of(reward), bool(((low == 0) & (width == 1)).all())
        unit = groups.reward if groups.mask is None else xp.where(groups.mask, reward, low[..., None])
        plain, binary = zeros_and_ones(unit, groups.times)
        outside = not (is_unit and binary) and lies_outside(groups, before["range"])
        if not is_unit or outside:
            unit = ((unit - low[..., None]) / width[..., None]).clip(0.0, 1.0)
            plain, binary = zeros_and_ones(unit, groups.times)
        return cls(
            groups=groups,
            visits=visits,
            unit=unit,
            plain=plain,
            binary=binary,
            low=low,
            width=width,
            is_unit=is_unit,
            outside=outside,
            rates=rates,
            population=Population.of(rates, before, since),
            returning=returning,
            scored=scored,
            all_scored=bool(scored.all()),
            shape=broadcast_shapes(
                (*groups.leading, reward.shape[-2]), visits.lag.shape[:-1], (*before["last_scored"].shape, 1)
            ),
            carry=before,
            since=xp.where(before["last_scored"] >= 0, since.clip(0.0, 1.0), 1.0)[..., None],
            of_last_step=newest <= (step - before["last_scored"])[..., None],
            last_scored=xp.where(returns > 0, step, before["last_scored"]),
        )

    @property
    def blocks(self) -> list[slice]:
        """Rows of so many prompts that their arrays stay in the processor's cache."""
        *leading, n_prompts = self.shape
        largest = max(BLOCK // max(math.prod(leading), 1), BLOCK // 64)
        size = math.ceil(n_prompts / max(math.ceil(n_prompts / largest), 1))
        size = ALIGNED * (math.ceil(size / ALIGNED) | 1)  # rows a power of two apart would drive each other out of it
        return [slice(first, first + size) for first in range(0, max(n_prompts, 1), size)]

    def coarse(self, array: Array) -> Array:
        """In the precision of beliefs, with an axis for the hypotheses."""
        return as_type_of(array, self.rates.variance)[..., None, :]

    def fine(self, parts: list[Array], axis: int = -1) -> Array:
        """Of all prompts, in the floating type of the rewards."""
        return as_type_of(joined(parts, axis), self.unit)

    @property
    def own_scale(self) -> Scale | None:
        """The range of earlier steps, where it is not [0, 1]."""
        return None if self.is_unit else Scale(self.coarse(self.low), self.coarse(self.width))

    def told_by_others(self, untold: _Believed) -> tuple[Population, _Believed]:
        """The population with the dispersion that other prompts' rewards tell, and what is then believed before."""
        _, pasts, _, known = untold
        if self.binary and known.exact:
            return self.population, untold
        first = bool((self.carry["dispersion"] == 0).all(-1).any())
        soft = as_type_of(~self.plain, self.unit)
        if not first and bool((self.groups.pooled_others(soft[..., None]) > 0).all()):
            return self.population, untold
        squares = self.squares(self.past_of(pasts, self.population.dispersion))
        population = self.population.told_by(self.groups.pooled_others(together([*squares, soft])))
        return population, self.believed(population) if first else untold  # the first tells that of the past too

    def believed(self, population: Population | None = None) -> _Believed:
        """Beliefs of each block before the step, their `Belief.past` and `posterior_mean`, and what they come from."""
        known, beliefs, pasts, means = (population or self.population).moving(), [], [], []
        for rows in self.blocks:  # each is summed up while it is in the processor's cache
            here = known.of(rows)
            beliefs.append(self.belief(here, rows))
            pasts.append(beliefs[-1].past)
            means.append(posterior_mean(beliefs[-1], here))
        return beliefs, pasts, means, known

    def belief(self, known: Moving, rows: slice) -> Belief:
        """Of some prompts at their present visit: from what is kept of them, or else from their visits anew."""
        xp, visits, returning = self.groups.xp, self.visits, self.returning[..., rows]
        scale, all_return = self.own_scale, bool(returning.all())
        if visits.state is not None and visits.lag.shape[-1]:
            state = as_type_of(visits.state[..., rows, :], self.rates.variance)
            kept = Belief.unpacked(state, known, scale)
            if all_return:
                return kept.moved(self.rates, known)
        unknown = Belief.unknown(self.rates, known, (*self.shape[:-1], returning.shape[-1]))
        if visits.lag.shape[-1] == 0 or not bool(returning.any()):
            return unknown
        if visits.state is not None:
            return kept.where(returning, unknown).moved(self.rates, known).where(returning, unknown)
        belief = unknown
        before = xp.zeros_like(visits.count[..., rows, 0]) > 0
        for column in range(visits.count.shape[-1]):
            here = visits.count[..., rows, column] > 0
            count, total = (self.coarse(part[..., rows, column]) for part in (visits.count, visits.total))
            if scale is not None:
                total = (total - scale.low * count) / scale.width
            total = xp.minimum(not_negative(total), count)
            copied = belief.where(before, belief)
            moved = copied.moved(self.rates, known).where(before, belief)
            after = moved.with_group(count, total, likely_of_group(moved, known, count, total, None), known)
            belief = after.where(here, belief)
            before = before | here
        return belief.moved(self.rates, known).where(returning, unknown)

    def served(self, baseline: BayesFilter, untold: _Believed, population: Population, told: _Believed) -> Served:
        """Values, carry and state.

        Prompts inform each other through ``untold`` alone. The dispersion in ``told`` uses this step's rewards, so a
        reward would come back to its own value through the other prompts.
        """
        groups, xp, unit = self.groups, self.groups.xp, self.unit
        count, total = groups.count[..., 0], summed(unit, groups.times)
        beliefs, _, _, known = told
        now = known
        if population.present is not population.dispersion:
            present = population.present
            now = known._replace(dispersion=self.coarse(present[..., 0, :]), exact=bool((present == 1).all()))
        past = self.past_of(untold[1], self.population.dispersion)
        squares = self.squares(past)
        each = together([*moments(past[0] + count, past[1] + total), *squares, as_type_of(~self.plain, unit)])
        pooled = groups.pooled(each)
        sums, prior = population.with_prompts(groups, each[..., :MOMENTS], pooled[..., :MOMENTS])
        shock, left = self.shock(untold[2], population, count, total)
        values, learned, afterwards = [], [], []
        like, size = self.rates.variance, baseline.state_size
        state = xp.empty((*self.shape, size), dtype=like.dtype, device=device(like))
        for rows, belief in zip(self.blocks, beliefs, strict=True):
            n, s = self.coarse(of_rows(count, rows)), self.coarse(of_rows(total, rows))
            before, here = known.of(rows), now.of(rows)._replace(prior=self.coarse(of_rows(prior, rows)))
            asked = belief, here
            if shock is not None:
                asked = shocked(belief, before, here, self.coarse(shock[..., :-1][..., rows]))
                belief, here = shocked(belief, before, here, self.coarse(shock[..., -1:]))
            value, likely = self.values_of(*asked, rows, n, s)
            if shock is not None or likely is None:
                likely = likely_of_group(belief, here, n, s, self.exact(rows, population))
            after = belief.with_group(n, s, likely, here)
            counts = None if self.all_scored else self.coarse(of_rows(self.scored, rows))
            learned.append(self.population.learned_from(belief.probability, likely, after.probability, known, counts))
            values.append(value)
            afterwards.append(after)
            state[..., rows, :] = after.packed(here, self.scale_of(rows, s))
        if shock is not None:  # the values are spread in another way now
            n, s = self.past_of([belief.past for belief in afterwards], population.present)
            shifted = groups.pooled(together(moments(n, s)))[..., 0, :]
            sums = xp.where(shock[..., -1:] != 0, shifted, sums)
        carry = self.carry | self.population.after(sum(learned), pooled[..., 0, MOMENTS:])
        carry |= left | {"population": sums, "last_scored": self.last_scored}
        value = self.fine(values, -2)
        if not self.is_unit:
            value = self.low[..., None] + self.width[..., None] * value
        if self.outside:
            value = plain_means(groups, carry["range"], value, past[0], self.width * past[1] + self.low * past[0])
            wider = widened(groups, carry["range"])
            changed = xp.any(wider != carry["range"], axis=-1, keepdims=True)  # else padding lay outside
            carry |= {"range": wider, "population": xp.where(changed, xp.zeros_like(sums), sums)}
            say_widened(baseline.low, baseline.high, self.carry["range"], carry["range"])
        if (baseline.low, baseline.high) != (0.0, 1.0):
            value = baseline.low + (baseline.high - baseline.low) * value
        came = pooled[..., 0, 0] > 0  # nothing changes where nobody is there for the others
        if not bool(came.all()):
            carry = {
                name: xp.where(came if name == "last_scored" else came[..., None], array, self.carry[name])
                for name, array in carry.items()
            }
        return Served(values=value, carry=carry, settled=baseline, state=state)

    def past_of(self, pasts: list[Array], dispersion: Array) -> tuple[Array, Array]:
        """Completions of that dispersion that each prompt's past counts as, and the sum of their rewards; (..., P)."""
        both = self.fine(pasts) * dispersion
        return both[..., 0, :] + both[..., 1, :], both[..., 0, :]

    def squares(self, past: tuple[Array, Array]) -> list[Array]:
        """See `squares_of`."""
        groups = self.groups
        return squares_of(groups, self.unit, self.binary, past, groups.count[..., 0], summed(self.unit, groups.times))

    def shock(self, means: list[Any], population: Population, count: Array, total: Array) -> tuple[Array | None, Left]:
        """See `common_shock`; nothing moves where no prompt counts, or the spread of values is still a guess."""
        xp, some = self.groups.xp, self.carry["population"][..., 4:5] > 0
        some = some if self.all_scored else some & xp.any(self.scored, axis=-1, keepdims=True)
        if not bool(some.any()):
            return None, {name: self.carry[name] for name in NOTHING_LEFT}
        mean, size = (self.fine([pair[j] for pair in means]) for j in (0, 1))
        here = as_type_of(self.scored, self.unit)
        before = before_step(self.carry, self.scored, self.of_last_step)
        told = mean, size, count * here, total * here, self.rates, before, self.since
        shock, left = common_shock(*told, self.population.dispersion[..., 0, :])
        if population.told is not None:  # how likely a shock is must not depend on what one tells the others
            of_others, dispersion = population.told
            soft = xp.any(of_others, axis=-1, keepdims=True)
            plain, after = common_shock(*told, dispersion)
            left = {name: xp.where(soft, array, after[name]) for name, array in left.items()}
            if shock is not None or plain is not None:
                either = (0.0 * here[..., :1] if one is None else one for one in (shock, plain))
                shock = xp.where(xp.concat([of_others, soft], axis=-1), *either)
        left = {name: xp.where(some, array, self.carry[name]) for name, array in left.items()}
        return None if shock is None else xp.where(some, shock, 0.0), left

    def values_of(
        self, belief: Belief, known: Moving, rows: slice, count: Array, total: Array
    ) -> tuple[Array, Array | None]:
        """Values on the unit scale of each completion of some prompts, its own reward left out; (..., P, G).

        And what `likely_of_group` gives, where it comes with them.
        """
        unit = self.unit[..., rows, :]
        if self.binary:
            values, likely = values_of_binary(belief, known, unit, count, total)
            return values, likely if known.exact else None
        times = None if self.groups.times is None else self.groups.times[..., rows, :]
        rests = as_type_of(not_negative(summed(unit, times)[..., None] - unit), self.rates.variance)
        return values_of_any(belief, known, rests, count), None

    def exact(self, rows: slice, population: Population) -> Array:
        """Groups of zeros and ones where the dispersion is 1; (..., 1, P)."""
        return self.plain[..., None, rows] & of_rows(population.present == 1, rows)

    def scale_of(self, rows: slice, unit_total: Array) -> Scale | None:
        """For rewards on their own scale, those of the group whatever they are."""
        if not self.outside:
            return self.own_scale
        low, width = self.coarse(self.low), self.coarse(self.width)
        came = self.groups.xp.sum(self.groups.carried, axis=-1)[..., rows]
        inside = unit_total * width + low * self.coarse(self.groups.count[..., rows, 0])
        return Scale(low, width, self.coarse(came) - inside)
