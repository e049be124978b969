"""What a filter believes of each prompt: Beta distributions, one for each hypothesis on how its value moves."""

from __future__ import annotations

from dataclasses import dataclass, replace

from array_api_compat import device

from kaestat.baselines.filter_rates import AGES, Rates
from kaestat.core.arrays import Array, namespace, not_negative

RENEWED = 0.02  # per visit: the chance that all prompts begin to move in another way
KEPT_APART = 0.998  # of a prompt's evidence per visit: the rest is for a change of the way in which it moves
TINY = 1e-30
PARTS = 4  # arrays of a belief


@dataclass(frozen=True, eq=False)
class Moving:
    """What is known of all prompts when values move; arrays that broadcast to (..., M, P).

    Attributes
    ----------
    a, b : array
        Parameters of the prior of the values.
    dispersion : array
        Variance of a reward relative to p (1 - p).
    ways : array, shape (..., K, 1)
        Probabilities of the ways in which values move.
    jump : array
        Probability of a jump.
    """

    a: Array
    b: Array
    dispersion: Array
    ways: Array
    jump: Array


@dataclass(frozen=True, eq=False)
class Belief:
    """Of P prompts under M hypotheses, all of shape (..., M, P).

    Attributes
    ----------
    count, total : array
        Completions of now that would tell as much as the past does, and the sum of their rewards in [0, 1].
    share : array
        The share of the prior that is left.
    odds : array
        Of the K ways of moving: how much better they predicted the past, up to a factor. Of the jumps: how much better
        than the K ways together.
    """

    count: Array
    total: Array
    share: Array
    odds: Array

    @classmethod
    def unpacked(cls, state: Array) -> Belief:
        """From the state of each prompt, shape (..., P, 4 M); new arrays."""
        xp = namespace(state)
        parts = xp.reshape(state, (*state.shape[:-1], PARTS, state.shape[-1] // PARTS))
        parts = xp.moveaxis(parts, -3, -1)
        laid_out = xp.empty(parts.shape, dtype=state.dtype, device=device(state))  # hypotheses apart, prompts together
        laid_out[...] = parts
        return cls(*(laid_out[..., j, :, :] for j in range(PARTS)))

    def packed(self) -> Array:
        """The inverse of `unpacked`."""
        xp = namespace(self.count)
        parts = xp.moveaxis(xp.stack([self.count, self.total, self.share, self.odds], axis=-3), -1, -3)
        return xp.reshape(parts, (*parts.shape[:-2], -1))

    @classmethod
    def unknown(cls, rates: Rates, shape: tuple[int, ...]) -> Belief:
        """Of prompts without a past; ``shape`` is (..., P)."""
        xp = namespace(rates.variance)
        *leading, n_prompts = shape
        none = xp.zeros((*leading, rates.variance.shape[0], n_prompts), dtype=rates.variance.dtype)
        none = xp.asarray(none, device=device(rates.variance))
        odds = xp.asarray(none, copy=True)
        odds[..., :-AGES, :] = 1.0
        return cls(none, none, none + 1.0, odds)

    def where(self, chosen: Array, other: Belief) -> Belief:
        """This where ``chosen`` (shape (..., P)), elsewhere the other."""
        xp = namespace(self.count)
        if bool(xp.all(chosen)):
            return self
        mine = chosen[..., None, :]
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("count", "total", "share", "odds"))
        return Belief(*(xp.where(mine, a, b) for a, b in pairs))

    def probabilities(self, known: Moving) -> Array:
        """Of the hypotheses, given what is known of all prompts; (..., M, P)."""
        xp = namespace(self.count)
        ways = known.ways * self.odds[..., :-AGES, :]
        jumped = known.jump * xp.sum(ways, axis=-2, keepdims=True) * self.odds[..., -AGES:, :]
        both = xp.concat([ways, jumped], axis=-2)
        both /= xp.sum(both, axis=-2, keepdims=True)
        return both

    def beta(self, known: Moving) -> tuple[Array, Array]:
        """Parameters of the Beta distributions."""
        a = self.share * known.a + self.total / known.dispersion
        failed = not_negative(self.count - self.total)  # rounding
        return a, self.share * known.b + failed / known.dispersion

    def moved(self, rates: Rates, known: Moving) -> Belief:
        """One visit on: a prompt may change the way in which it moves, or jump; then values move."""
        xp, last = namespace(self.count), slice(-1, None)
        probability = self.probabilities(known)
        ways, aged = probability[..., :-AGES, :], probability[..., last, :]
        stay, change = KEPT_APART * ways, (1 - KEPT_APART + RENEWED) * ways
        together = xp.sum(ways, axis=-2, keepdims=True)
        inflow = (1 - KEPT_APART) * together + aged
        mass = stay + known.ways * inflow
        # What a way believes comes from the likely ones also where all prompts may begin to move in that way.
        entering = known.ways * inflow + RENEWED * rates.start * together
        entering /= stay + entering
        inflow = inflow + RENEWED * together

        def mixed(part: Array, fresh: float) -> Array:
            """Of each way: its own and what enters it, weighed by their probabilities."""
            of_ways, of_aged = part[..., :-AGES, :], part[..., last, :]
            enters = xp.sum(change * of_ways, axis=-2, keepdims=True) + aged * of_aged
            enters = enters / inflow
            out = xp.empty_like(part)
            out[..., :-AGES, :] = of_ways + entering * (enters - of_ways)
            out[..., -AGES, :] = fresh
            out[..., 1 - AGES :, :] = part[..., -AGES:-1, :]
            return out

        count, total, share = mixed(self.count, 0.0), mixed(self.total, 0.0), mixed(self.share, 1.0)
        sum_mass = xp.sum(mass, axis=-2, keepdims=True)
        odds = xp.empty_like(probability)
        odds[..., :-AGES, :] = mass / (sum_mass * known.ways)
        odds[..., -AGES, :] = 1 / (sum_mass * (1 - known.jump))[..., 0, :]
        odds[..., 1 - AGES :, :] = self.odds[..., -AGES:-1, :]
        odds[..., 1 - AGES :, :] *= xp.sum(ways, axis=-2, keepdims=True) / sum_mass
        return Belief(count, total, share, odds)._drifted(rates, known)._walked(rates, known)

    def _drifted(self, rates: Rates, known: Moving) -> Belief:
        rows = slice(-AGES - rates.drift.shape[0], -AGES)
        here = Belief(*(part[..., rows, :] for part in (self.count, self.total, self.share, self.odds)))
        drift = rates.drift * known.dispersion**0.5
        moved = here.shifted(known, drift, replace(known))
        self.count[..., rows, :], self.total[..., rows, :] = moved.count, moved.total
        return self

    def _walked(self, rates: Rates, known: Moving) -> Belief:
        """A walk divides a precision J of the logit by 1 + q^2 J; q is relative to the noise of a reward."""
        a, b = self.beta(known)
        size = a + b
        slope = a * b / (size * size)
        precision = rates.variance * slope * self.count
        left = 1 / (1 + precision)
        of_prior = rates.variance * slope * known.dispersion * (known.a + known.b) * self.share
        return replace(
            self,
            count=self.count * left,
            total=self.total * left,
            share=self.share * left / (1 + precision + of_prior),
        )

    def shifted(self, known: Moving, by: Array, after: Moving) -> Belief:
        """Logits moved by so much, as precisely known as before, with the prior that holds then."""
        xp = namespace(self.count)
        a, b = self.beta(known)
        size = a + b
        factor = xp.exp(by)
        scale = (b + a * factor) / size
        moved = a * factor / (b + a * factor)
        size = size * scale * scale / factor
        count = not_negative(size - self.share * (known.a + known.b))
        total = xp.minimum(not_negative(moved * size - self.share * after.a), count)
        return replace(self, count=count * known.dispersion, total=total * known.dispersion)

    def with_group(self, count: Array, total: Array, log_evidence: Array, known: Moving) -> Belief:
        """After a group of ``count`` completions with rewards of sum ``total``; both (..., 1, P)."""
        xp = namespace(self.count)
        best = xp.max(log_evidence[..., :-AGES, :], axis=-2, keepdims=True)
        odds = self.odds * xp.exp(60 - not_negative(60 - (log_evidence - best)))
        together = xp.sum(known.ways * odds[..., :-AGES, :], axis=-2, keepdims=True) + TINY
        return Belief(self.count + count, self.total + total, self.share, odds / together)


def log_evidence(a: Array, b: Array, count: Array, total: Array) -> Array:
    """Log probability of ``total`` successes and ``count - total`` failures, in one order, under Beta(a, b).

    ``log Gamma`` by Stirling's formula from the next integer on, accurate to 0.003.
    """
    xp = namespace(a)
    size, failed = a + b, count - total
    exact = (1 + total / a) * (1 + failed / b) / (1 + count / size)
    return _rising(a, total) + _rising(b, failed) - _rising(size, count) - xp.log(exact)


def _rising(z: Array, k: Array) -> Array:
    """``log (Gamma(z + 1 + k) / Gamma(z + 1))``."""
    xp, up = namespace(z), z + 1
    end = up + k
    ratio = k / up
    return (z + 0.5) * xp.log(1 + ratio) + k * xp.log(end) - k - (1 / 12) * ratio / end
