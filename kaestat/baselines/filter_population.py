"""What a filter learns from all prompts together and carries from step to step."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kaestat.baselines.filter_arrays import added_up, as_type_of, at_least, largest, summed, together
from kaestat.baselines.filter_belief import TINY, WAYS, Moving
from kaestat.baselines.filter_rates import Rates
from kaestat.core.arrays import Array, Groups, namespace, not_negative

DISCOUNT = 0.9  # on what was learned, per return of the prompts
LEAST_RETURN = 0.1  # that a step counts as where no prompt returns
SWITCH = 0.02  # probability per return that prompts are spread over the ways in another manner
ENOUGH = 100.0  # prompts from which a prior is estimated; fewer at a step are joined by those before
MIN_OTHERS = 5.0  # degrees of freedom given up in the spread of values
FIRST_SIZE = 0.7  # completions that a prior counts as while the spread is unknown
SMALLEST_SIZE, LARGEST_SIZE = 0.05, 300.0
SMALLEST_DISPERSION = 0.01
SOFT_REWARDS = 0.97  # what a reward of 0 or 1 leaves of the evidence for others, where a step has none of these
MOMENTS = 6  # terms of `moments`
PSEUDO_SQUARES = 0.05  # of binary rewards, while little is known


@dataclass(frozen=True, eq=False)
class Population:
    """The learned numbers in a carry, for one step."""

    rates: Rates
    carry: dict[str, Array]
    dispersion: Array  # shape (..., 1, 1 or P); of the past
    exact: bool  # Whether that is 1
    present: Array  # shape (..., 1, 1 or P); dispersion of the rewards of this step
    learned: Array  # shape (..., K); probabilities of the ways where prompts are spread as learned
    # shape (..., C, K); of each manner in which prompts are spread over the ways, the probabilities of these
    mixtures: Array
    mixture: Array  # shape (..., C); probabilities of the manners
    kept: Array  # shape (...,); what is left of earlier steps
    # shape (..., P) each; whether other prompts have rewards that are not 0 or 1, and the dispersion of this step if
    # none has; None where all have them, or the dispersion is 1
    told: tuple[Array, Array] | None = None

    @classmethod
    def of(cls, rates: Rates, carry: dict[str, Array], elapsed: Array) -> Population:
        """The population after so many returns of the prompts, shape (...,)."""
        dispersion = _dispersion(carry["dispersion"][..., None, :])
        first = (carry["dispersion"] == 0).all(-1)[..., None, None]
        if bool(first.any()):
            most = first_dispersion(carry["population"])[..., None, None]
            dispersion = namespace(elapsed).where(first, most, dispersion)
        learned = carry["each"] / added_up(carry["each"], -1)
        switched = (1 - SWITCH) ** at_least(elapsed, 1.0)[..., None]
        return cls(
            rates=rates,
            carry=carry,
            dispersion=dispersion,
            exact=bool((dispersion == 1).all()),
            present=dispersion,
            learned=learned,
            mixtures=rates.mixtures + rates.as_learned * learned[..., None, :],
            mixture=rates.mixture_prior + switched * (_softmax(carry["mixture"]) - rates.mixture_prior),
            kept=DISCOUNT**elapsed,
        )

    def told_by(self, others: Array) -> Population:
        """The population where the other prompts' rewards tell of the dispersion; sums, (..., P, 4), as for `after`.

        The first rewards that are not 0 or 1 set the dispersion of the past too.
        """
        xp, others, earlier = namespace(others), not_negative(others), self.carry["dispersion"][..., None, :]
        first, soft = (earlier == 0).all(-1)[..., None], others[..., 3] > 0
        sums = [earlier[..., 0] + 0 * others[..., 0], earlier[..., 1] * SOFT_REWARDS ** others[..., 2]]
        dispersion = xp.where(first & soft[..., None, :], _dispersion(others), self.dispersion)
        exact, plain = bool((dispersion == 1).all()), _dispersion(together(sums))
        present = xp.where(soft[..., None, :], dispersion, plain)
        told = soft, plain[..., 0, :]
        return replace(self, dispersion=dispersion, exact=exact, present=present, told=told)

    def moving(self) -> Moving:
        """The part of the population that beliefs need."""
        ways = (self.mixture[..., None, :] @ self.mixtures)[..., 0, :]
        jump = added_up(_softmax(self.carry["jumps"]) * self.rates.jump, -1)[..., 0]
        prior = prior_of(self.carry["population"][..., None, :], None if self.exact else self.dispersion[..., 0, :])
        parts = prior[..., None, :], self.dispersion, ways[..., None], jump[..., None, None]
        prior, dispersion, ways, jump = (as_type_of(part, self.rates.variance) for part in parts)
        return Moving(prior, dispersion, ways, jump, self.exact)

    def with_prompts(self, groups: Groups, each: Array, now: Array) -> tuple[Array, Array]:
        """Sums behind the prior after the step, (..., 6), and each prompt's prior from the other prompts, (..., 2, P).

        ``each`` are `moments`, (..., P, 6), and ``now`` their sums, (..., 1, 6).
        """
        xp, before = namespace(each), self.carry["population"][..., None, :]
        changed = self.present is not self.dispersion
        if changed:
            inverse = before[..., 5:] * (self.dispersion / self.present)[..., 0, :, None]
            parts = [before[..., :4] + 0 * inverse, before[..., 4:5] + before[..., 5:] - inverse, inverse]
            before = xp.concat(parts, axis=-1)
        missing, known = not_negative(ENOUGH - now[..., :1]), before[..., :1]
        after = before * (1 - not_negative(1 - missing / xp.where(known > 0, known, 1.0))) + now
        prior = prior_of(after - each, None if self.exact and not changed else self.present[..., 0, :])
        if changed:  # what is learned has the mean
            after = groups.pooled(each[..., :1] * after) / at_least(now[..., :1], 1.0)
        return after[..., 0, :], prior

    def after(self, learned: Array, dispersion: Array) -> dict[str, Array]:
        """The carry after a step: each part decays towards its initial value and adds its sum.

        The sums are of `learned_from`, and of squares, as many for zeros and ones, completions and soft rewards.
        """
        carry, kept, first = self.carry, self.kept[..., None], self.rates.carry
        now = {"mixture": namespace(kept).log(self.mixture), "jumps": carry["jumps"], "each": carry["each"]}
        out, fresh = {}, 1 - kept  # after a change, excluded hypotheses can return
        for name, array in now.items():
            out[name] = kept * array + fresh * first[name] + learned[..., : array.shape[-1]]
            learned = learned[..., array.shape[-1] :]
        for name in ("mixture", "jumps"):
            out[name] = out[name] - largest(out[name], -1)
        faded = kept.clip(0.0, DISCOUNT**LEAST_RETURN) * carry["dispersion"]
        faded[..., 1] *= _alike(dispersion)
        return out | {"dispersion": faded + dispersion[..., :2]}

    def learned_from(self, before: Array, likely: Array, after: Array, known: Moving, here: Array | None) -> Array:
        """What the returns of a step add to the "mixture", the "jumps" and "each" of the carry; (..., C + J + K).

        ``before`` and ``after`` are probabilities of the hypotheses before and after the step, (..., M, P), and
        ``likely`` those before it times the evidence of the step, up to a factor. ``here``, (..., 1, P), is 1 for the
        prompts that count and 0 for the others; None where all count.
        """
        xp = namespace(before)
        mixtures = as_type_of(self.mixtures, before) / known.ways[..., 0][..., None, :]
        ratio = mixtures @ likely[..., WAYS, :]
        ratio /= mixtures @ before[..., WAYS, :]
        # How much better than the ways a jump some visits ago predicts what followed; 1 where it says nothing.
        jumped = after[..., -1:, :] / (known.jump * added_up(after[..., WAYS, :]) + TINY)
        jumped = xp.where(jumped > 0, jumped.clip(0.0, 1e6), 1.0)
        jump = as_type_of(self.rates.jump, before)[:, None]
        terms = [xp.log(ratio + TINY), xp.log(1 + jump * (jumped - 1)), after[..., WAYS, :]]
        if here is not None:
            terms = [here * term for term in terms]
        return added_up(xp.concat(terms, axis=-2), -1, self.learned.dtype)[..., 0]


def moments(count: Array, total: Array) -> list[Array]:
    """Terms to estimate a prior from, for prompts with these counts and sums of rewards; (..., P) each.

    For the mean m of n completions: ``1, m, m^2, m (1 - m), 1 - 1/n, 1/n``.
    """
    one = as_type_of(count > 0, count)
    size = count + (1 - one)
    mean = one * total / size
    inverse = one - not_negative(one - one / size)
    square = mean * mean
    return [one, mean, square, mean - square, one - inverse, inverse]


def squares_of(
    groups: Groups, unit: Array, binary: bool, past: tuple[Array, Array], count: Array, total: Array
) -> list[Array]:
    """Squares of rewards around their mean, ``u (1 - u)`` of as many, and completions; (..., P) each.

    Around the mean of the group, or where a prompt has one completion around that of its past. ``past`` has the
    completions that this counts as, and the sum of their rewards.
    """
    xp, size = groups.xp, 1 + not_negative(count - 1)
    if binary:
        within, mixed = total * (1 - total / size), 0 * total
    else:
        off = unit - (total / size)[..., None]
        off = off if groups.mask is None else off * groups.present
        within = summed(off * off, groups.times)
        mixed = (count - 1) / size * (total - summed(unit * unit, groups.times))
    alone = count == 1
    if bool(alone.any()):
        known = past[0] > 0
        n = xp.where(known, past[0], 1.0)
        within = within + xp.where(known & alone, n / (n + 1), 0.0) * (total - past[1] / n) ** 2
        mixed = xp.where(count > 1, mixed, xp.where(known & alone, total * (1 - total), 0.0))
    return [within, mixed, count]


def zeros_and_ones(unit: Array, times: Array | None) -> tuple[Array, bool]:
    """Whether each group holds whole numbers of zeros and ones, as a prior's rate may not; (..., P).

    And whether all groups do.
    """
    plain = unit * unit == unit
    plain = plain if times is None else plain & (times % 1 == 0)
    binary = bool(plain.all())
    return plain[..., 0] if binary and plain.shape[-1] else plain.all(-1), binary


def first_dispersion(sums: Array) -> Array:
    """The most that the dispersion can be while no prompt has two rewards; (..., 6) to (...,).

    The sums of `moments` give it as if all values were alike. It is 1 for zeros and ones. It is 1 too where prompts
    have several rewards that show no dispersion, since these are zeros and ones.
    """
    n = at_least(sums[..., 0], 1.0)
    middle = (sums[..., 1] + 0.5) / (n + 1)
    most = (1 - sums[..., 3] / (n * (middle - middle * middle))).clip(SMALLEST_DISPERSION, 1.0)
    return namespace(sums).where(sums[..., 4] > 0, 1.0, most)


def _dispersion(sums: Array) -> Array:
    """The dispersion that such sums of squares tell, (..., P, 2); (..., 1, P)."""
    within, between = sums[..., 0] + PSEUDO_SQUARES, sums[..., 1]
    return (within / (within + between)).clip(SMALLEST_DISPERSION, 1.0)[..., None, :]


def _alike(sums: Array) -> Array:
    """What a step leaves of the evidence that rewards are not of 0 and 1 alone; sums as for `Population.after`."""
    return SOFT_REWARDS ** namespace(sums).where(sums[..., 3] > 0, 0.0, sums[..., 2])


def prior_of(sums: Array, dispersion: Array | None) -> Array:
    """Parameters of a Beta distribution by the method of moments, from sums of `moments`; (..., P, 6) to (..., 2, P).

    ``dispersion``, (..., 1 or P), is None for 1.

    The variance of values is that of the means, less that of their noise; the error of the estimated mean is added to
    it, so that with few prompts the prior fades out (see `kaestat.baselines.kae_eb`).
    """
    xp = namespace(sums)
    k, mean, square, within, freedom, inverse = (sums[..., j] for j in range(sums.shape[-1]))
    if dispersion is not None:
        freedom, inverse = freedom + (1 - dispersion) * inverse, dispersion * inverse
    n = at_least(k, 1e-9)
    # A prompt that does not count has one other fewer than none: what comes out for it must only be a number.
    middle = ((mean + 0.5) / (n + 1)).clip(1e-3, 1 - 1e-3)
    largest = middle - middle * middle
    known = (k > MIN_OTHERS + 0.5) & (freedom > 1e-6 * n)
    noise = within * inverse / (n * xp.where(known, freedom, 1.0))
    spread = not_negative((square - mean * mean / n) / at_least(n - MIN_OTHERS, 0.5) - noise)
    variance = spread + (spread + noise) / n
    variance = xp.where(known, variance, largest / (1 + FIRST_SIZE))
    size = (largest / at_least(variance, 1e-6) - 1).clip(SMALLEST_SIZE, LARGEST_SIZE)
    a = middle * size
    return together([a, size - a]).swapaxes(-1, -2)


def first_carry(rates: Rates) -> dict[str, Array]:
    """The carry before the first step."""
    xp = namespace(rates.first)
    return rates.carry | {"dispersion": xp.zeros(2), "population": xp.zeros(6)}


def _softmax(log_weight: Array) -> Array:
    xp = namespace(log_weight)
    weight = xp.exp(log_weight - largest(log_weight, -1))
    return weight / added_up(weight, -1)
