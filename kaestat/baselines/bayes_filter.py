"""A Bayes filter of every prompt's value. It learns from all prompts how values move, jump and spread."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from kaestat.baselines import beta_mixture as mixture
from kaestat.baselines.base import Served
from kaestat.baselines.beta_mixture import KINDS, MOST, RARE, Beta, Learned, likelihood, relative
from kaestat.baselines.kae_eb import MIN_OTHERS
from kaestat.baselines.reward_range import RangedBaseline
from kaestat.core.arrays import Array, Groups, Visits, as_like, namespace, not_negative, ratio

JUMPS = {0.001: 0.6, 0.01: 0.3, 0.1: 0.1}  # chances of a jump per visit and their priors: most runs have hardly any
FORGET = 0.9  # factor on the learned evidence each time all prompts have returned: the filter remembers ten returns
ENOUGH = 100.0  # prompts for a prior, whose mean then has an error of .03; a smaller step is joined by earlier ones
SIZES = 0.05, 300.0  # completions that a prior can count as; 300 is a spread of values of .03, less than a walk makes
LEAST = 0.01  # dispersion: that of rewards within .05 of their mean
SHOCK = 0.005  # chance of a move of all logits alike, per return of all prompts: one in 200 returns
SHIFTS = np.linspace(-4.0, 4.0, 17)  # of all logits: half a logit apart, as well as a step can tell them
ENOUGH_FOR_SHOCK = 64  # prompts that return at a step; chance among ten looks like a shock, and costs walks 3 to 8 %
# How prompts are spread over the kinds, a row for each: nearly all are of one kind; as many are of each
SPREADS = np.vstack([(1 - RARE) * np.eye(len(KINDS)) + RARE / len(KINDS), np.full(len(KINDS), 1 / len(KINDS))])


@dataclass(frozen=True)
class BayesFilter(RangedBaseline):
    """Posterior mean of the prompt's value, given its past, the rest of its group, and what all prompts tell.

    Each prompt's success rate has a Beta distribution for each of the kinds of moves of its logit
    (`kaestat.baselines.beta_mixture.KINDS`), and for a jump since the last visit, which redraws it. All prompts
    together tell the weights of the kinds, the chance of jumps, the prior, the dispersion of rewards, and shocks that
    move all logits; the method's page has the equations. No value depends on its own reward, for *prompts tell each
    other only what was believed before the step*. Time is counted in visits. State: 40 numbers of single precision for
    each prompt.

    Parameters
    ----------
    low, high : float
        Range of the rewards; see `RangedBaseline`.
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
        return 4 * (len(KINDS) + 1)

    def initial_carry(self) -> dict[str, np.ndarray]:
        """Log evidence of `SPREADS` and `JUMPS`, sums of `moments_of` and `squares_of`, prompts so far, the range."""
        sums = {"moments": np.zeros(4), "squares": np.zeros(2), "prompts": np.zeros(1)}
        odds = {"spreads": np.zeros(len(SPREADS)), "jumps": np.zeros(len(JUMPS))}
        return odds | sums | {"range": np.array([self.low, self.high])}

    def accepts_carry(self, carry: dict[str, np.ndarray] | None) -> bool:
        return super().accepts_carry(carry) and np.array_equal((carry or {})["range"], [self.low, self.high])

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        return self.serve(groups, visits, step=step, carry=carry).values

    def advance(self, carry: Any, groups: Groups, visits: Visits, *, step: int | Array) -> dict[str, Array]:
        return self.serve(groups, visits, step=step, carry=carry).carry

    def effective_completions(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        """``p (1 - p) / u - 1`` for posterior mean p and variance u, as for a Beta distribution."""
        _, _, learned, belief, _ = self._before(groups, visits, carry)
        return as_like(learned.dispersion * mixture.mean_and_size(belief, learned)[1], groups.reward)

    def _before(self, groups: Groups, visits: Visits, carry: Any) -> tuple[Any, ...]:
        """Groups on the unit scale, the carry with an axis for prompts and what it says, and `believed`."""
        groups, visits = self.to_unit(groups, visits)
        self.check_in_unit("bayes_filter tracks success rates", groups, visits, warn=True)
        reward = groups.xp.astype(groups.reward * (groups.present > 0), groups.xp.float64)
        groups = replace(groups, reward=groups.xp.clip(reward, 0.0, 1.0))
        carry = self.initial_carry() if carry is None else carry
        carry = {name: as_like(array, groups.reward)[..., None, :] for name, array in carry.items()}
        learned = learned_from(carry)
        return groups, carry, learned, *believed(visits, learned, groups.count)

    def serve(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Served:
        given = groups.reward
        groups, before, learned, belief, seen = self._before(groups, visits, carry)
        xp, count, total = groups.xp, groups.count, groups.xp.sum(groups.carried, axis=-1, keepdims=True)
        here, back = (xp.astype(each, count.dtype) for each in (count > 0, (count > 0) & seen))
        returns, weight = groups.pooled(back), mixture.weights(belief, learned)
        returned = returns / xp.maximum(xp.maximum(before["prompts"], returns), xp.ones_like(returns))
        # Sums over the other prompts: of their rewards, and of what was believed of them before the step.
        n, s = (xp.sum(weight * part, axis=-1, keepdims=True) for part in (belief[0], belief[1]))
        squares, each = squares_of(groups, count, total, n, s), here * moments_of(n + count, s + total)
        dispersion = dispersion_of(before["squares"] + groups.pooled_others(squares))
        moments = before["moments"] * not_negative(1 - groups.pooled(each)[..., :1] / ENOUGH)
        prior = prior_of(moments + groups.pooled_others(each), dispersion)
        beta = mixture.beta_of(belief, prior, dispersion)
        if bool(xp.any(returns >= ENOUGH_FOR_SHOCK)):
            chance = SHOCK * returned * xp.astype(returns >= ENOUGH_FOR_SHOCK, count.dtype)
            by = shock(groups, mixture.mean_and_size(belief, learned), learned.dispersion, back, total, chance)
            beta, moved = mixture.shifted(*beta, by), mixture.shifted(*prior, by)
            past = (whole - belief[2] * its for whole, its in zip(beta, moved, strict=True))
            total_of, failures = (xp.clip(part * dispersion, 0.0, MOST) for part in past)
            belief = xp.stack([total_of + failures, total_of, belief[2], belief[3]])
        likely = likelihood(beta, count / dispersion, total / dispersion)
        # What all prompts tell fades, and the returning prompts add how well each hypothesis predicted them.
        kept, spreads, jumps = FORGET**returned, as_like(SPREADS.T, count), as_like([*JUMPS], count)
        kinds = ((belief[3] * likely)[..., :-1] @ spreads + 1e-300) / (belief[3][..., :-1] @ spreads)
        ordinary = xp.sum((weight * likely)[..., :-1], axis=-1, keepdims=True) / (1 - weight[..., -1:]) + 1e-300
        better = xp.log(1 + jumps * (xp.clip(likely[..., -1:] / ordinary, 0.0, MOST) - 1))
        after = {
            "spreads": kept * before["spreads"] + groups.pooled(back * xp.log(kinds)),
            "jumps": kept * before["jumps"] + groups.pooled(back * better),
            "moments": moments + groups.pooled(each),
            "squares": kept * before["squares"] + groups.pooled(squares),
            "prompts": before["prompts"] + groups.pooled(here - back),
            "range": before["range"],
        }
        values = self.from_unit(values_of(beta, weight, groups, total, dispersion))
        state = xp.broadcast_arrays(belief[0] + count, belief[1] + total, belief[2], belief[3] * likely)
        carry = {name: array[..., 0, :] for name, array in after.items()}
        return Served(as_like(values, given), carry, settled=self, state=xp.concat(state, axis=-1))


def learned_from(carry: dict[str, Array]) -> Learned:
    """What a carry says before a step."""
    xp, dispersion = namespace(carry["jumps"]), dispersion_of(carry["squares"])
    odds = carry["spreads"], carry["jumps"] + as_like(np.log([*JUMPS.values()]), dispersion)
    spreads, jumps = (relative(each) / xp.sum(relative(each), axis=-1, keepdims=True) for each in odds)
    jump = xp.sum(jumps * as_like([*JUMPS], jumps), axis=-1, keepdims=True)
    return Learned(spreads @ as_like(SPREADS, jumps), jump, prior_of(carry["moments"], dispersion), dispersion)


def believed(visits: Visits, learned: Learned, like: Array) -> tuple[Array, Array]:
    """The belief at the present visit, from the state or without one from the visits, and which prompts have a past."""
    xp, fresh, seen = namespace(like), mixture.unknown(like + 0.0 * learned.jump), like < 0
    belief, size, phi = fresh, len(KINDS) + 1, learned.dispersion
    if visits.state is not None and visits.lag.shape[-1]:
        state, seen = as_like(visits.state, like), xp.any(visits.count > 0, axis=-1, keepdims=True)
        belief = xp.where(seen, xp.stack([state[..., k * size : (k + 1) * size] for k in range(4)]), fresh)
    for k in range(visits.lag.shape[-1] if visits.state is None else 0):
        count, total = visits.count[..., k : k + 1], visits.total[..., k : k + 1]
        now = xp.where(seen, mixture.moved(belief, learned), fresh)
        likely = likelihood(mixture.beta_of(now, learned.prior, phi), count / phi, total / phi)
        now = xp.stack([now[0] + count, now[1] + total, now[2], now[3] * likely])
        belief, seen = xp.where(count > 0, now, belief), seen | (count > 0)
    return xp.where(seen, mixture.moved(belief, learned), fresh), seen


def squares_of(groups: Groups, count: Array, total: Array, n: Array, s: Array) -> Array:
    """Squares of rewards around the mean, and how much more zeros and ones with that mean have; (..., P, 2).

    Around the mean of the group, or for a single completion around that of its past, s of n.
    """
    xp, reward, present, many = groups.xp, groups.reward, groups.present, count > 1
    mean = xp.where(many, ratio(total, count, 0.0, xp), ratio(s, n, 0.0, xp))
    free = xp.where(many, 1 - ratio(xp.ones_like(count), count, 0.0, xp), n / (n + 1))
    squares = xp.sum(present * (reward - mean) ** 2, axis=-1, keepdims=True)
    more = free * xp.sum(present * reward * (1 - reward), axis=-1, keepdims=True)
    return xp.concat([xp.where(many, squares, free * squares), more], axis=-1)


def dispersion_of(sums: Array) -> Array:
    """Dispersion from sums of `squares_of`, (..., 2) to (..., 1); it is 1 for rewards of 0 and 1."""
    squares = sums[..., :1] + LEAST
    return namespace(sums).clip(squares / (squares + sums[..., 1:]), LEAST, 1.0)


def moments_of(n: Array, s: Array) -> Array:
    """For the mean m = s / n of a prompt: 1, d = m - 1/2, d^2 and 1 / n; (..., P, 4)."""
    xp, one = namespace(n), namespace(n).ones_like(s)
    off = ratio(s, n, 0.5, xp) - 0.5
    return xp.concat([one, off, off**2, ratio(one, n, 0.0, xp)], axis=-1)


def prior_of(sums: Array, dispersion: Array) -> Beta:
    """The prior by moments, from sums of `moments_of` over prompts, (..., 4) to (..., 1).

    The variance of values is that of the means less that of their noise. The error of the estimated mean adds to it, so
    that a prior from few prompts counts little. While the noise is not known, it counts as one completion.
    """
    xp = namespace(sums)
    k, off, square, inverse = (sums[..., j : j + 1] for j in range(4))
    n, noise = xp.clip(k, 1e-9, None), dispersion * inverse
    middle = xp.clip(0.5 + off / (n + 1), 1e-3, 1 - 1e-3)
    known, most = (k > MIN_OTHERS + 0.5) & (k - noise > 1e-6 * n), middle * (1 - middle)
    noise = noise / n * not_negative(k / 4 - square) / xp.where(known, k - noise, xp.ones_like(k))
    spread = not_negative((square - off**2 / n) / xp.clip(n - MIN_OTHERS, 0.5, None) - noise)
    variance = xp.where(known, spread + (spread + noise) / n, most / 2)
    size = xp.clip(most / xp.clip(variance, 1e-6, None) - 1, *SIZES)
    return middle * size, (1 - middle) * size


def shock(groups: Groups, of: Beta, dispersion: Array, back: Array, total: Array, chance: Array) -> Array:
    """Posterior mean of a move of all logits, from the other prompts with a past, (..., P, 1).

    ``of`` has means and sizes before the step. The likelihood is divided by the excess variance of a Beta-binomial.
    """
    xp, count, shifts, (mean, size) = groups.xp, groups.count, as_like(SHIFTS, total), of
    by = shifts * size / (size + 1)  # of the mean's logit
    gain = (total * by - count * xp.log1p(mean * xp.expm1(by))) * (size + 1) / (dispersion * size + count)
    prior = xp.log(xp.where(shifts == 0, 1 - chance, chance / len(SHIFTS)) + 1e-300)
    likely = relative(groups.pooled_others(back * gain) + prior)
    return xp.sum(likely * shifts, axis=-1, keepdims=True) / xp.sum(likely, axis=-1, keepdims=True)


def values_of(beta: Beta, weight: Array, groups: Groups, total: Array, dispersion: Array) -> Array:
    """Posterior mean for each completion, given the rest of its group; (..., P, G)."""
    xp, reward, others = groups.xp, groups.reward, not_negative(groups.count - 1) / dispersion
    distinct, values, place = xp.unique_values(reward), 0.0 * (reward + total), xp.arange(reward.shape[-1])
    few = distinct.shape[0] < reward.shape[-1]  # completions of the same reward have the same rest
    for k in range(min(distinct.shape[0], reward.shape[-1])):
        own, here = (distinct[k], reward == distinct[k]) if few else (reward[..., k : k + 1], place == k)
        rest = xp.minimum(not_negative(total - own) / dispersion, others)
        likely = weight * likelihood(beta, others, rest)
        value = xp.sum(likely * (beta[0] + rest) / (beta[0] + beta[1] + others), axis=-1, keepdims=True)
        values = xp.where(here, value / xp.sum(likely, axis=-1, keepdims=True), values)
    return values
