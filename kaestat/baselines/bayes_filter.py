"""A Bayes filter on the logit scale whose prior, rate of change and common drift are learned from all prompts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from array_api_compat import device

from kaestat.arrays import Array, Groups, Visits
from kaestat.baselines.base import Served
from kaestat.baselines.reward_range import RangedBaseline

GRID_SIZE, GRID_EDGE = 49, 7.0  # logits -7..7
WALKS = (0.03, 0.08, 0.2, 0.5, 1.2)  # standard deviations per visit, logits
DRIFTS = ((0.1, 0.03),)  # walks with a common drift, and its size, per visit
DRIFTING_SHARE = 0.25  # prior probability of a common drift
SWITCH = 0.02  # probability per visit that another rate of change takes over
DISCOUNT = 0.9  # on past log likelihoods, per return of the prompts
PRIOR_DISCOUNT, PRIOR_COUNT, PRIOR_SD = 0.8, 8.0, 2.0  # per return; pseudo-prompts of the first prior, and its spread
EM_STEPS = 3
SMALLEST = 1e-30  # of messages and priors: what is ruled out for good could not come back
SMALLEST_DISPERSION = 0.01


@dataclass(frozen=True)
class BayesFilter(RangedBaseline):
    """Posterior mean of the prompt's value, given its past and the rest of its group, under a learned random walk.

    The logit x of a prompt's success rate walks from visit to visit, ``x' = x + d + q e`` with e standard normal, and
    its completions are Bernoulli draws. On a grid of 49 logits each of seven rates of change ``(q, d)`` has its own
    filter, with likelihoods ``m`` in place of posteriors, so that the prior can be learned later::

        m <- Bin(s successes of n | expit(x)) (W_qd m)            V = sum_qd w_qd E[expit(x) | m_qd pi^rho_qd]

    and the group's other completions enter V as one more Binomial factor. What is learned:

    - ``w``, the probabilities of (q, d): predictive likelihoods of past groups, pooled over prompts, discounted by 0.9
      for each return of the prompts. With probability .02 a visit switches to another rate, before which the filters
      are mixed accordingly (Blom and Bar-Shalom's interacting multiple models), so a filter that starts to fit again
      does not start from its stale past.
    - ``pi``, the distribution of logits over prompts: nonparametric maximum likelihood on the grid (Laird, 1978) by
      EM, run along with the steps, where 8 pseudo-prompts of N(0, 2^2) stand for what is not known yet.
    - ``rho``, the share of a prompt's prior that its walk has left: with J the precision of m and r that of pi^rho,
      each visit divides it by ``(1 + q^2 J) (1 + q^2 (J + r))``, which is exact for normal likelihoods.

    All of it comes from earlier steps, so a value never depends on its own reward; for 0/1 rewards the leave-one-out
    is exact. Time is counted in visits: prompts that return at every step or every sixty are the same.

    Other rewards in [low, high] enter by the quasi-binomial form (Wedderburn, 1974): a reward u in [0, 1] counts u as a
    success and 1 - u as a failure, both divided by the dispersion phi, so that a group mean has the variance
    ``phi p (1 - p) / n`` of its normal approximation. phi is learned from the variance within past groups,
    ``phi = S^2 / (S^2 + mean of u (1 - u))``; it is 1 for 0/1 rewards, and while no group had two completions.

    State: 350 numbers of single precision for each prompt, 1.4 kB.

    Parameters
    ----------
    low, high : float
        Range of the rewards; see `RangedBaseline`.

    Raises
    ------
    ValueError
        If ``low`` is not below ``high``, or a reward lies outside them.
    """

    stepwise: ClassVar[bool] = True

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
        return len(rates_of_change().walk) * (GRID_SIZE + 1)

    def initial_carry(self) -> dict[str, np.ndarray]:
        """Log weights of (q, d); prompts at each logit; last scored step, and sums behind the dispersion."""
        rates = rates_of_change()
        return {
            "log_weight": np.log(rates.prior),
            "prompts": PRIOR_COUNT * _first_prior(),
            "last_scored": np.array(-1.0),
            "dispersion": np.zeros(2),
        }

    def accepts_carry(self, carry: dict[str, np.ndarray] | None) -> bool:
        return super().accepts_carry(carry) and carry is not None and bool((carry["prompts"] > 0).all())

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        return self._ahead(groups, visits, step, carry).values

    def advance(self, carry: Any, groups: Groups, visits: Visits, *, step: int | Array) -> dict[str, Array]:
        return self.serve(groups, visits, step=step, carry=carry).carry

    def serve(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Served:
        ahead = self._ahead(groups, visits, step, carry)
        xp, carry, belief = groups.xp, ahead.carry, ahead.belief
        total, count = (sums[..., 0] / ahead.dispersion for sums in self._successes(groups))
        likelihood = _likelihood(total, count)[..., None, :, :]
        predictive = xp.vecdot(ahead.posterior, likelihood) / xp.sum(ahead.posterior, axis=-1)  # (..., M, P)
        scored = ahead.returning[..., None, :]
        evidence = xp.sum(xp.where(scored, xp.log(predictive), xp.zeros_like(predictive)), axis=-1)
        message = _normalised(belief.message * likelihood)
        any_scored = xp.any(ahead.returning, axis=-1)
        kept = DISCOUNT ** ahead.elapsed[..., None]
        first = _like(np.log(rates_of_change().prior), groups)
        log_weight = kept * xp.log(ahead.weight) + (1 - kept) * first + evidence
        now = _like(step, groups)
        now = now[..., 0, 0] if now.ndim >= 2 else now
        after = {
            "log_weight": log_weight - xp.max(log_weight, axis=-1, keepdims=True),
            "prompts": _prompts_at(carry["prompts"], message, belief.share, ahead),
            "last_scored": xp.where(any_scored, now, carry["last_scored"]),
            "dispersion": carry["dispersion"] + self._dispersion_sums(groups),
        }
        return Served(values=ahead.values, carry=after, settled=self, state=_packed(message, belief.share))

    def _ahead(self, groups: Groups, visits: Visits, step: int | Array, carry: Any) -> _Ahead:
        """What earlier steps say of this one, and its values."""
        xp = groups.xp
        carry = {name: _like(a, groups) for name, a in (self.initial_carry() if carry is None else carry).items()}
        self._check(groups, visits)
        visited = visits.count > 0
        newest = (
            xp.min(xp.where(visited, visits.lag, xp.full_like(visits.lag, np.inf)), axis=-1)
            if (visits.lag.shape[-1])
            else xp.full_like(groups.reward[..., 0], np.inf)
        )
        returning = newest < np.inf
        lag = xp.where(returning, newest, xp.zeros_like(newest))
        returns = xp.sum(xp.astype(returning, lag.dtype), axis=-1)
        mean_lag = xp.where(returns > 0, xp.sum(lag, axis=-1) / xp.clip(returns, 1.0, None), xp.ones_like(returns))
        now = _like(step, groups)
        since = (now[..., 0, 0] if now.ndim >= 2 else now) - carry["last_scored"]
        since = xp.where((carry["last_scored"] >= 0) & (returns > 0), xp.clip(since, 0.0, None), xp.zeros_like(returns))
        elapsed = since / mean_lag

        weight = xp.exp(carry["log_weight"] - xp.max(carry["log_weight"], axis=-1, keepdims=True))
        weight = weight / xp.sum(weight, axis=-1, keepdims=True)
        prior = carry["prompts"] / xp.sum(carry["prompts"], axis=-1, keepdims=True)
        within, between = carry["dispersion"][..., 0], carry["dispersion"][..., 1]
        phi = xp.where(within > 0, within / xp.where(within > 0, within + between, xp.ones_like(within)), 1.0)
        phi = xp.clip(phi, SMALLEST_DISPERSION, 1.0)[..., None]
        belief = self._belief(groups, visits, weight, prior, phi).moved(weight, prior, returning)
        switched = (1 - SWITCH) ** elapsed[..., None]
        weight = switched * weight + (1 - switched) * _like(rates_of_change().prior, groups)
        total, count = self._successes(groups)
        # One likelihood serves all completions of equal reward; 0/1 rewards need two.
        own = self._scaled(groups.reward)
        distinct = xp.unique_values(own if groups.mask is None else own[groups.mask])
        if distinct.shape[0] < own.shape[-1]:
            each = distinct + xp.zeros_like(own[..., :1])
        else:
            each, distinct = own, None
        rest = _likelihood(
            (total - each) / phi[..., None], (count - 1 + xp.zeros_like(each)) / phi[..., None]
        )  # (..., P, C, K)
        posterior = belief.posterior(prior)
        both = xp.concat([rest * _like(_success_rates(), groups), rest], axis=-2)
        both = xp.matmul(xp.moveaxis(posterior, -3, -2), xp.moveaxis(both, -1, -2))  # (..., P, M, 2 C)
        size = each.shape[-1]
        value = xp.sum(weight[..., None, :, None] * both[..., :size] / both[..., size:], axis=-2)
        if distinct is not None:
            place = xp.astype(own[..., None] == distinct, value.dtype)
            value = xp.sum(xp.where(place > 0, value[..., None, :], xp.zeros_like(place)), axis=-1)
        return _Ahead(
            values=self.low + (self.high - self.low) * value + xp.zeros_like(groups.reward),
            carry=carry,
            belief=belief,
            posterior=posterior,
            weight=weight,
            prior=prior,
            dispersion=phi,
            returning=returning,
            elapsed=elapsed,
        )

    def _belief(self, groups: Groups, visits: Visits, weight: Array, prior: Array, phi: Array) -> Belief:
        """Of each prompt after its newest visit: as kept, or filtered anew with what is known by now."""
        xp, size = groups.xp, len(rates_of_change().walk)
        fresh = xp.zeros_like(groups.reward[..., None, :, :1]) + _like(np.zeros((size, 1, 1)), groups)
        belief = Belief(message=fresh + _like(np.full(GRID_SIZE, 1 / GRID_SIZE), groups), share=fresh[..., 0] + 1)
        if visits.lag.shape[-1] == 0:
            return belief
        if visits.state is not None:
            kept = _like(visits.state, groups)
            kept = xp.moveaxis(xp.reshape(kept, (*kept.shape[:-1], size, GRID_SIZE + 1)), -2, -3)
            kept = Belief(message=kept[..., :-1], share=kept[..., -1])
            return kept.where(xp.any(visits.count > 0, axis=-1), belief)
        scale = self.high - self.low
        before = xp.zeros_like(visits.count[..., 0]) > 0
        for column in range(visits.lag.shape[-1]):
            count = visits.count[..., column]
            here = count > 0
            total = (visits.total[..., column] - self.low * count) / scale
            seen = belief.moved(weight, prior, before)
            likelihood = _likelihood(total / phi, count / phi)[..., None, :, :]
            seen = Belief(message=_normalised(seen.message * likelihood), share=seen.share)
            belief = seen.where(here, belief)
            before = before | here
        return belief

    def _scaled(self, reward: Array) -> Array:
        return (reward - self.low) / (self.high - self.low)

    def _successes(self, groups: Groups) -> tuple[Array, Array]:
        """Sum of the rewards on the unit scale, and the count; both (..., P, 1)."""
        total = groups.xp.sum(groups.carried, axis=-1, keepdims=True)
        return (total - self.low * groups.count) / (self.high - self.low), groups.count

    def _dispersion_sums(self, groups: Groups) -> Array:
        """Squares within groups of two or more, and ``u (1 - u)`` per degree of freedom; (..., 2)."""
        xp = groups.xp
        count = groups.count
        unit = xp.where(groups.present > 0, self._scaled(groups.reward), xp.zeros_like(groups.reward))
        mean = xp.sum(unit, axis=-1, keepdims=True) / xp.clip(count, 1.0, None)
        several = xp.astype(count > 1, mean.dtype)
        within = xp.sum(several * groups.present * (unit - mean) ** 2, axis=(-2, -1))
        mixed = several * (count - 1) / xp.clip(count, 1.0, None) * xp.sum(unit * (1 - unit), axis=-1, keepdims=True)
        return xp.stack([within, xp.sum(mixed, axis=(-2, -1))], axis=-1)

    def _check(self, groups: Groups, visits: Visits) -> None:
        xp = groups.xp
        unit = xp.where(groups.present > 0, self._scaled(groups.reward), xp.zeros_like(groups.reward))
        total = visits.total - self.low * visits.count
        outside = bool(xp.any((unit < 0) | (unit > 1)))
        if outside or bool(xp.any((total < 0) | (visits.total > self.high * visits.count + 1e-9 * (1 + total)))):
            raise ValueError(
                f"rewards: bayes_filter takes rewards in [{self.low:g}, {self.high:g}]; state their range "
                "with low= and high=."
            )


@dataclass(frozen=True, eq=False)
class Belief:
    """What each rate of change says of each prompt.

    Attributes
    ----------
    message : array, shape (..., M, P, K)
        Likelihood of the prompt's present logit given its past, as a distribution over the grid.
    share : array, shape (..., M, P)
        The share rho of the prior that is left.
    """

    message: Array
    share: Array

    def where(self, chosen: Array, other: Belief) -> Belief:
        """This where ``chosen`` (shape (..., P)), elsewhere the other."""
        xp = _namespace(self.message)
        if bool(xp.all(chosen)):
            return self
        return Belief(
            message=xp.where(chosen[..., None, :, None], self.message, other.message),
            share=xp.where(chosen[..., None, :], self.share, other.share),
        )

    def posterior(self, prior: Array) -> Array:
        """Distribution over the grid under the prior, up to a factor; shape (..., M, P, K)."""
        xp = _namespace(self.message)
        return self.message * xp.exp(self.share[..., None] * xp.log(prior[..., None, None, :]))

    def moved(self, weight: Array, prior: Array, seen: Array) -> Belief:
        """One visit on, for the prompts that have been seen: rates may switch, then logits walk."""
        xp, rates = _namespace(self.message), rates_of_change()
        first = _like(rates.prior, self.message)
        switch = (1 - SWITCH) * _like(np.eye(len(rates.prior)), self.message) + SWITCH * first[:, None]
        source = switch * weight[..., None, :]
        source = source / xp.sum(source, axis=-1, keepdims=True)  # where a filter's prompts come from, (..., M, M)
        flat = (*self.message.shape[:-2], -1)
        message = xp.reshape(xp.matmul(source, xp.reshape(self.message, flat)), self.message.shape)

        logits, variance = _like(_logits(), message), _like(rates.walk**2, message)[:, None]
        precision = 1 / _variance(message, logits)
        share = xp.matmul(source, self.share)
        left = share / _variance(prior, logits)[..., None, None]
        share = share / ((1 + variance * precision) * (1 + variance * (precision + left)))
        moved = Belief(message=xp.matmul(message, _like(rates.transition, message)), share=share)
        return moved.where(seen, self)


@dataclass(frozen=True, eq=False)
class RatesOfChange:
    """The rates of change that are averaged over.

    Attributes
    ----------
    walk, drift, prior : ndarray, shape (M,)
        Standard deviation and mean of a move, in logits per visit, and the prior probability.
    transition : ndarray, shape (M, K, K)
        Probabilities of the moves between the logits of the grid.
    """

    walk: np.ndarray
    drift: np.ndarray
    prior: np.ndarray
    transition: np.ndarray


@dataclass(frozen=True, eq=False)
class _Ahead:
    values: Array
    carry: dict[str, Array]
    belief: Belief
    posterior: Array
    weight: Array
    prior: Array
    dispersion: Array
    returning: Array
    elapsed: Array


@cache
def rates_of_change() -> RatesOfChange:
    """Five walks without drift, and one that drifts up or down."""
    still = [(q, 0.0, (1 - DRIFTING_SHARE) / len(WALKS)) for q in WALKS]
    moving = [(q, sign * d, DRIFTING_SHARE / (2 * len(DRIFTS))) for q, d in DRIFTS for sign in (-1, 1)]
    walk, drift, prior = np.array([*still, *moving]).T
    return RatesOfChange(walk, drift, prior, np.stack([transition(q, d) for q, d in zip(walk, drift, strict=True)]))


def transition(walk: float, drift: float) -> np.ndarray:
    """Probabilities of moving from each logit of the grid (rows) to each other, shape (K, K).

    A normal density at the points of the grid, which has the walk's variance almost exactly; a walk narrower than the
    grid moves by one point at most, with the same mean and variance. What would leave the grid stays at its end.
    """
    logits = _logits()
    spacing = logits[1] - logits[0]
    if walk >= 0.8 * spacing:
        density = np.exp(-0.5 * ((logits - logits[:, None] - drift) / walk) ** 2)
        return density / density.sum(axis=1, keepdims=True)
    mean, square = drift / spacing, (walk**2 + drift**2) / spacing**2
    moves = {-1: (square - mean) / 2, 0: 1 - square, 1: (square + mean) / 2}
    if min(moves.values()) < 0:
        raise ValueError(f"a walk of {walk} with a drift of {drift} is too fine for the grid.")
    matrix, row = np.zeros((GRID_SIZE, GRID_SIZE)), np.arange(GRID_SIZE)
    for points, probability in moves.items():
        np.add.at(matrix, (row, np.clip(row + points, 0, GRID_SIZE - 1)), probability)
    return matrix


@cache
def _logits() -> np.ndarray:
    return np.linspace(-GRID_EDGE, GRID_EDGE, GRID_SIZE)


@cache
def _success_rates() -> np.ndarray:
    return 1 / (1 + np.exp(-_logits()))


@cache
def _first_prior() -> np.ndarray:
    density = np.exp(-0.5 * (_logits() / PRIOR_SD) ** 2)
    return density / density.sum()


def _prompts_at(prompts: Array, message: Array, share: Array, ahead: _Ahead) -> Array:
    """Prompts at each logit, discounted, after some steps of EM with those of this step; (..., K)."""
    xp = _namespace(message)
    weight = ahead.weight[..., None, :]
    mixed = xp.reshape(
        xp.matmul(weight, xp.reshape(message, (*message.shape[:-2], -1))), (*message.shape[:-3], *message.shape[-2:])
    )
    share = xp.matmul(weight, share)[..., 0, :, None]
    kept = PRIOR_DISCOUNT ** ahead.elapsed[..., None]
    base = kept * prompts + (1 - kept) * PRIOR_COUNT * _like(_first_prior(), message)
    prior, total = ahead.prior, base
    for _ in range(EM_STEPS):
        posterior = _normalised(mixed * xp.exp(share * xp.log(prior[..., None, :])))
        total = base + xp.sum(share * posterior, axis=-2)
        prior = total / xp.sum(total, axis=-1, keepdims=True)
    return total


def _likelihood(successes: Array, count: Array) -> Array:
    """``p^s (1 - p)^(n - s)`` over the grid, relative to its largest; (...,) to (..., K)."""
    xp = _namespace(successes)
    logits = _like(_logits(), successes)
    log_failure = _like(-np.logaddexp(0.0, _logits()), successes)
    log = successes[..., None] * logits + count[..., None] * log_failure
    return xp.exp(log - xp.max(log, axis=-1, keepdims=True))


def _normalised(density: Array) -> Array:
    xp = _namespace(density)
    return density / xp.sum(density, axis=-1, keepdims=True) + SMALLEST


def _variance(distribution: Array, points: Array) -> Array:
    xp = _namespace(distribution)
    mean = xp.vecdot(distribution, points)
    return xp.clip(xp.vecdot(distribution, points**2) - mean**2, 1e-3, None)


def _packed(message: Array, share: Array) -> Array:
    """State of each prompt, shape (..., P, S)."""
    xp = _namespace(message)
    both = xp.moveaxis(xp.concat([message, share[..., None]], axis=-1), -3, -2)
    return xp.reshape(both, (*both.shape[:-2], -1))


def _namespace(array: Array) -> Any:
    from array_api_compat import array_namespace

    return array_namespace(array)


def _like(array: Any, other: Groups | Array) -> Array:
    """``array`` in the kind, floating type and device of the rewards."""
    model = other.reward if isinstance(other, Groups) else other
    return _namespace(model).asarray(array, dtype=model.dtype, device=device(model))
