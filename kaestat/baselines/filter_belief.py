"""The filter's belief about each prompt: one Beta distribution for each hypothesis about how its value moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from array_api_compat import device

from kaestat.baselines.filter_arrays import Scale, added_up, of_rows
from kaestat.baselines.filter_rates import AGES, Rates
from kaestat.core.arrays import Array, namespace, not_negative

RENEWED = 0.02  # per visit: the chance that all prompts begin to move in another way
KEPT_APART = 0.998  # of a prompt's evidence per visit: the rest is for a change of the way in which it moves
TINY = 1e-30
LEAST_WAYS = 1e-20  # probability of the ways together where a jump is as good as certain: odds are relative to them
LARGEST_COUNT = 1e9  # of a prompt that is never solved, a downward drift makes more and more
PARTS = 4  # arrays of a state
SPARE = 16  # numbers between two rows: rows a power of two apart would drive each other out of the processor's cache
STRIP = 512  # prompts whose states turn in the processor's cache: half the time of all at once
WAYS, JUMPED = slice(None, -AGES), slice(-AGES, None)  # of the hypotheses


class Moving(NamedTuple):
    """What is known about all prompts while values move; arrays that broadcast to (..., M, P)."""

    prior: Array  # shape (..., 2, M, P); parameters of the prior of the values
    dispersion: Array  # Variance of a reward relative to p (1 - p)
    ways: Array  # shape (..., K, 1); probabilities of the ways in which values move
    jump: Array  # Probability of a jump
    exact: bool  # Whether the dispersion is 1, so that counts need no division

    def of(self, rows: slice) -> Moving:
        """For some prompts."""
        if self.dispersion.shape[-1] == 1:  # the same for all
            return self
        return self._replace(prior=of_rows(self.prior, rows), dispersion=of_rows(self.dispersion, rows))


@dataclass(frozen=True, eq=False)
class Belief:
    """The belief about P prompts under M hypotheses."""

    # shape (..., 3, M, P); successes and failures of now that would tell as much as the past does, divided by the
    # dispersion; the share of the prior that is left
    parts: Array
    probability: Array  # shape (..., M, P); of the hypotheses

    @classmethod
    def unpacked(cls, state: Array, known: Moving, scale: Scale | None) -> Belief:
        """The belief from the state of each prompt, shape (..., P, 4 M).

        A state has the count of completions and the sum of their rewards, on their own scale, the share, and the odds:
        of the ways, how much better they predicted the past, up to a factor; of the jumps, how much better than the
        ways together.
        """
        xp, (*leading, n_prompts, size) = namespace(state), state.shape
        whole = xp.empty((*leading, size, n_prompts), dtype=state.dtype, device=device(state))
        for first in range(0, n_prompts, STRIP):  # hypotheses apart, prompts together
            strip = slice(first, first + STRIP)
            whole[..., strip] = state[..., strip, :].swapaxes(-1, -2)
        whole = whole.reshape((*leading, PARTS, size // PARTS, n_prompts))
        parts, odds = whole[..., :-1, :, :], whole[..., -1, :, :]
        count, total = parts[..., 0, :, :], parts[..., 1, :, :]
        if scale is not None:
            total = xp.minimum(not_negative((total - scale.low * count) / scale.width), count)
        count -= total
        failed = not_negative(count)
        parts[..., 0, :, :] = total
        parts[..., 1, :, :] = failed
        if not known.exact:
            parts[..., :2, :, :] /= known.dispersion[..., None, :, :]
        odds[..., WAYS, :] *= known.ways
        together = added_up(odds[..., WAYS, :])
        odds[..., JUMPED, :] *= known.jump * together
        odds /= together + added_up(odds[..., JUMPED, :]) + TINY
        return cls(parts, odds)

    def packed(self, known: Moving, scale: Scale | None) -> Array:
        """The inverse of `unpacked`."""
        xp, parts = namespace(self.parts), self.parts
        *leading, _, n_ways, n_prompts = parts.shape
        shape = (*leading, PARTS, n_ways, n_prompts + SPARE)
        out = xp.empty(shape, dtype=parts.dtype, device=device(parts))[..., :n_prompts]
        count, total, odds = (out[..., j, :, :] for j in (0, 1, 3))
        out[..., 1:3, :, :] = parts[..., 0::2, :, :]
        count[...] = total
        count += parts[..., 1, :, :]
        if not known.exact:
            out[..., :2, :, :] *= known.dispersion[..., None, :, :]
        if scale is not None:
            total *= scale.width
            total += scale.low * count + scale.beyond
        each = 1 / (added_up(self.probability[..., WAYS, :]) + TINY)
        odds[..., WAYS, :] = self.probability[..., WAYS, :] / known.ways
        odds[..., JUMPED, :] = self.probability[..., JUMPED, :] / known.jump
        odds *= each
        return out.reshape((*leading, PARTS * n_ways, n_prompts)).swapaxes(-1, -2)

    @classmethod
    def unknown(cls, rates: Rates, known: Moving, shape: tuple[int, ...]) -> Belief:
        """The belief about prompts without a past; ``shape`` is (..., P)."""
        xp, *leading, n_prompts = namespace(rates.variance), *shape
        here = {"dtype": rates.variance.dtype, "device": device(rates.variance)}
        n_ways = rates.variance.shape[0]
        parts = xp.zeros((*leading, PARTS - 1, n_ways, n_prompts), **here)
        parts[..., 2, :, :] = 1.0
        probability = xp.zeros((*leading, n_ways, n_prompts), **here)
        probability[..., WAYS, :] = known.ways
        return cls(parts, probability)

    def where(self, chosen: Array, other: Belief) -> Belief:
        """This belief where ``chosen`` (shape (..., P)), the other elsewhere."""
        xp, mine = namespace(self.parts), chosen[..., None, :]
        parts = xp.where(mine[..., None, :, :], self.parts, other.parts)
        return Belief(parts, xp.where(mine, self.probability, other.probability))

    @property
    def past(self) -> Array:
        """Successes and failures, the hypotheses weighed; (..., 2, P)."""
        return added_up(self.probability[..., None, :, :] * self.parts[..., :2, :, :])[..., 0, :]

    def beta(self, known: Moving) -> Array:
        """Parameters of the Beta distributions; (..., 2, M, P)."""
        both = self.parts[..., 2:, :, :] * known.prior
        both += self.parts[..., :2, :, :]
        return both

    def moved(self, rates: Rates, known: Moving) -> Belief:
        """The belief one visit later: the hypothesis may change, the value may jump, then values move.

        What this belief was is written over.
        """
        parts, probability = self.parts, self.probability
        ways, aged = probability[..., WAYS, :], probability[..., -1:, :]
        together = added_up(ways)
        inflow = (1 - KEPT_APART) * together + aged
        renewed = RENEWED * together
        stay, arriving = KEPT_APART * ways, known.ways * inflow
        # What a way believes comes from the likely ones also where all prompts may begin to move in that way.
        entering = arriving + rates.start * renewed
        stay_or_enter = stay + entering
        entering /= stay_or_enter
        of_ways = parts[..., WAYS, :]
        enters = added_up(ways[..., None, :, :] * of_ways)
        enters *= 1 - KEPT_APART + RENEWED
        enters += aged[..., None, :, :] * parts[..., -1:, :]
        enters /= (inflow + renewed)[..., None, :, :]
        toward = enters - of_ways
        toward *= entering[..., None, :, :]
        of_ways += toward
        parts[..., 1 - AGES :, :] = parts[..., -AGES:-1, :]
        parts[..., :2, -AGES, :] = 0.0
        parts[..., 2, -AGES, :] = 1.0
        stay += arriving
        probability[..., WAYS, :] = stay
        probability[..., 1 - AGES :, :] = probability[..., -AGES:-1, :]
        probability *= 1 - known.jump
        probability[..., -AGES, :] = known.jump[..., 0, :]
        drifting = parts[..., -AGES - rates.drift.shape[0] : -AGES, :]
        _drift(drifting, rates.drift if known.exact else rates.drift * known.dispersion**0.5)
        _walk(parts, self.beta(known), rates, known)
        return self

    def with_group(self, count: Array, total: Array, likely: Array, known: Moving) -> Belief:
        """After a group of ``count`` completions with rewards of sum ``total``, (..., 1, P); writes over its parts.

        ``likely`` has the probabilities times the evidence of the group, up to a factor; (..., M, P).
        """
        for j, came in enumerate((total, not_negative(count - total))):
            past = self.parts[..., j, :, :]
            past += came if known.exact else came / known.dispersion
        of_ways = added_up(likely[..., WAYS, :])
        together = of_ways + added_up(likely[..., JUMPED, :]) + TINY
        probability, lost = likely / together, of_ways < LEAST_WAYS * together
        if bool(lost.any()):
            ways = namespace(likely).where(lost, LEAST_WAYS * known.ways, probability[..., WAYS, :])
            probability[..., WAYS, :] = ways
        return Belief(self.parts, probability)


def _drift(parts: Array, by: Array) -> None:
    """Move the logits of the past by so much, and leave it as precise; the prior is estimated anew at each step.

    With ``r = (b + a e^by) / (a + b)``, a moved value has the distribution Beta(a r, b r e^-by).
    """
    a, b, factor = parts[..., 0, :, :], parts[..., 1, :, :], namespace(parts).exp(by)
    ratio = a * factor
    ratio += b
    ratio /= a + b + TINY
    a *= ratio
    ratio /= factor
    b *= ratio
    parts[..., :2, :, :] = parts[..., :2, :, :].clip(0.0, LARGEST_COUNT)


def in_bounds(both: Array) -> Array:
    """Successes and failures where neither is negative; if one is, the other compensates. Writes over them."""
    beyond = both.clip(-np.inf, 0.0)
    both[..., 0, :, :] += beyond[..., 1, :, :]
    both[..., 1, :, :] += beyond[..., 0, :, :]
    return both.clip(0.0, LARGEST_COUNT)


def _walk(parts: Array, both: Array, rates: Rates, known: Moving) -> None:
    """A walk divides a precision J of the logit by 1 + q^2 J; q is relative to the noise of a reward."""
    a, b = both[..., 0, :, :], both[..., 1, :, :]
    size = a + b
    whole = a * b  # of the prior and the past together: q^2 J
    whole /= size
    whole *= rates.variance if known.exact else rates.variance * known.dispersion
    count = parts[..., 0, :, :] + parts[..., 1, :, :]
    count /= size
    count *= whole
    count += 1
    parts *= (1 / count)[..., None, :, :]
    whole += 1
    parts[..., 2, :, :] /= whole
