"""A Bayes filter on the logit scale whose prior, rate of change and common drift are learned from all prompts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import device

from kaestat.baselines.base import Served
from kaestat.baselines.logit_grid import GRID_SIZE, SWITCH, Belief, LogitGrid, as_type_of, first_prior, rates_of_change
from kaestat.baselines.reward_range import RangedBaseline
from kaestat.core.arrays import Array, Groups, Visits, namespace

DISCOUNT = 0.9  # on past log likelihoods, per return of the prompts
PRIOR_DISCOUNT, PRIOR_COUNT = 0.8, 8.0  # per return; pseudo-prompts of the first prior
EM_STEPS = 3
SMALLEST_DISPERSION = 0.01
BLOCK = 192  # series of messages whose arrays fit the processor's cache


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

    State: 350 numbers of single precision for each prompt, 1.4 kB. A step computes with them in single precision too,
    which leaves values accurate to 2e-6; what is learned of all prompts together has the precision of the rewards.

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
    shrinks: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True

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
            "prompts": PRIOR_COUNT * first_prior(),
            "last_scored": np.array(-1.0),
            "dispersion": np.zeros(2),
        }

    def accepts_carry(self, carry: dict[str, np.ndarray] | None) -> bool:
        return super().accepts_carry(carry) and carry is not None and bool((carry["prompts"] > 0).all())

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        return self.serve(groups, visits, step=step, carry=carry).values

    def advance(self, carry: Any, groups: Groups, visits: Visits, *, step: int | Array) -> dict[str, Array]:
        return self.serve(groups, visits, step=step, carry=carry).carry

    def serve(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Served:
        unit = self._unit(groups)
        self._check(unit, visits)
        grid = LogitGrid.as_type_of(groups.reward)
        xp = grid.xp
        carry, now = self._before(carry, step, groups)
        known = _known(grid, groups, visits, now, carry)
        completions = _Completions.of(unit, groups, known.dispersion)
        leading = np.broadcast_shapes((*groups.leading, unit.shape[-2]), visits.lag.shape[:-1])
        state = xp.empty((*leading, self.state_size), dtype=grid.transition.dtype, device=device(unit))
        after = Belief.unpacked(state)
        parts = [self._seen(grid, known, completions, visits, rows, after.rows(rows)) for rows in _blocks(leading)]
        sums, mass, mixed, share = (
            part[0] if len(part) == 1 else xp.concat(part, axis=axis)
            for part, axis in zip(zip(*parts, strict=True), (-4, -1, -2, -1), strict=True)
        )

        evidence = grid.fine(xp.log(xp.matrix_transpose(sums[..., 0, :, 0]) / mass))
        scored = xp.where(known.scored[..., None, :], evidence, xp.zeros_like(evidence))
        kept = DISCOUNT ** known.elapsed[..., None]
        first = xp.log(grid.rate_prior)
        log_weight = kept * xp.log(known.weight) + (1 - kept) * first + xp.sum(scored, axis=-1)
        carry_after = {
            "log_weight": log_weight - xp.max(log_weight, axis=-1, keepdims=True),
            "prompts": _prompts_at(grid, known, carry["prompts"], mixed, share, groups),
            "last_scored": xp.where(xp.any(known.scored, axis=-1), now, carry["last_scored"]),
            "dispersion": carry["dispersion"] + _dispersion_sums(unit, groups),
        }
        values = self.low + (self.high - self.low) * grid.fine(completions.values(sums, grid.coarse(known.weight)))
        return Served(values=values, carry=carry_after, settled=self, state=state)

    def effective_completions(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        """``p (1 - p) / u - 1`` of the posterior's mean p and variance u: those of a Beta distribution."""
        grid = LogitGrid.as_type_of(groups.reward)
        xp = grid.xp
        carry, now = self._before(carry, step, groups)
        known = _known(grid, groups, visits, now, carry)
        shape = np.broadcast_shapes((*groups.leading, groups.reward.shape[-2]), visits.lag.shape[:-1])
        success = grid.fine(grid.success)
        powers = xp.stack([xp.ones_like(success), success, success**2], axis=-1)
        found = []
        for rows in _blocks(shape):
            belief = self._belief(grid, known, visits, rows, (*shape[:-1], len(range(shape[-1])[rows])))
            sums = xp.matmul(grid.fine(belief.posterior(known.log_prior)), powers)  # (..., M, P, 3)
            moments = xp.sum(known.weight[..., None, None] * sums[..., 1:] / sums[..., :1], axis=-3)
            mean = moments[..., :1]
            found.append(mean * (1 - mean) / (moments[..., 1:] - mean**2) - 1)
        return found[0] if len(found) == 1 else xp.concat(found, axis=-2)

    def _before(self, carry: Any, step: int | Array, groups: Groups) -> tuple[dict[str, Array], Array]:
        """The carry and the step as arrays of the rewards' kind."""
        before = self.initial_carry() if carry is None else carry
        now = as_type_of(step, groups.reward)
        return {name: as_type_of(a, groups.reward) for name, a in before.items()}, now[
            ..., 0, 0
        ] if now.ndim >= 2 else now

    def _seen(
        self, grid: LogitGrid, known: _Known, completions: _Completions, visits: Visits, rows: slice, after: Belief
    ) -> tuple[Array, Array, Array, Array]:
        """Of some prompts: integrals of their posteriors (..., P, 1 + C, M, 2), up to a factor, with each likelihood of
        ``completions``, and with that times the success rate; masses of these posteriors (..., M, P); messages with all
        rates mixed (..., P, K); shares of the prior (..., P). Sets what is believed after the step."""
        xp = grid.xp
        belief = self._belief(grid, known, visits, rows, (*after.share.shape[:-2], after.share.shape[-1]))
        posterior = belief.posterior(known.log_prior)
        likelihood = grid.likelihood(completions.outcomes[..., rows, :, :])
        factors = xp.matrix_transpose(xp.stack([likelihood, likelihood * grid.success], axis=-2))
        # One product for each likelihood: one of all would round its columns differently, so that an own reward, which
        # decides on the column, would show in the last digit.
        sums = xp.matmul(xp.moveaxis(posterior, -3, -2)[..., None, :, :], factors)
        message = grid.normalised(belief.message * likelihood[..., None, :, 0, :])
        after.message[...], after.share[...] = message, belief.share
        weight, flat = grid.coarse(known.weight)[..., None, :], xp.reshape(message, (*message.shape[:-2], -1))
        mixed = xp.reshape(xp.matmul(weight, flat), (*flat.shape[:-2], -1, GRID_SIZE))
        share = xp.matmul(weight, belief.share)[..., 0, :]
        return sums, xp.matmul(posterior, grid.ones), mixed, share

    def _belief(self, grid: LogitGrid, known: _Known, visits: Visits, rows: slice, shape: tuple[int, ...]) -> Belief:
        """Of some prompts at their present visit: from what is kept, or filtered anew with what is known by now."""
        returning = known.returning[..., rows]
        if known.kept is not None and bool(grid.xp.all(returning)):
            return known.kept.rows(rows).moved(grid, known.source, known.prior_variance)
        belief = grid.unknown(shape[-1], shape[:-1])
        if visits.lag.shape[-1] == 0:
            return belief
        if known.kept is not None:
            kept = known.kept.rows(rows).where(returning, belief)
            return kept.moved(grid, known.source, known.prior_variance).where(returning, belief)
        count = visits.count[..., rows, :]
        total = (visits.total[..., rows, :] - self.low * count) / (self.high - self.low)
        before = grid.xp.zeros_like(count[..., 0]) > 0
        for column in range(count.shape[-1]):
            here = count[..., column] > 0
            outcomes = _outcomes(total[..., column], count[..., column], known.dispersion)
            likelihood = grid.likelihood(outcomes)
            seen = belief.moved(grid, known.source, known.prior_variance).where(before, belief)
            seen = Belief(message=grid.normalised(seen.message * likelihood[..., None, :, :]), share=seen.share)
            belief = seen.where(here, belief)
            before = before | here
        return belief.moved(grid, known.source, known.prior_variance).where(returning, belief)

    def _scaled(self, reward: Array) -> Array:
        return (reward - self.low) / (self.high - self.low)

    def _unit(self, groups: Groups) -> Array:
        """Rewards on the unit scale, 0 in the padding."""
        unit = self._scaled(groups.reward)
        return unit if groups.mask is None else groups.xp.where(groups.mask, unit, groups.xp.zeros_like(unit))

    def _check(self, unit: Array, visits: Visits) -> None:
        xp = namespace(unit)
        total = visits.total - self.low * visits.count
        outside = bool(xp.any((unit < 0) | (unit > 1)))
        if outside or bool(xp.any((total < 0) | (visits.total > self.high * visits.count + 1e-9 * (1 + total)))):
            raise ValueError(
                f"rewards: bayes_filter takes rewards in [{self.low:g}, {self.high:g}]; state their range "
                "with low= and high=."
            )


@dataclass(frozen=True, eq=False)
class _Completions:
    """Successes and failures (..., P, 1 + C, 2) of each group, and of the group without a completion of each of the C
    distinct rewards of the step, or without each of its C completions if these are fewer; and which of the C leaves
    each completion out (..., P, G)."""

    outcomes: Array
    place: Array

    @classmethod
    def of(cls, unit: Array, groups: Groups, phi: Array) -> _Completions:
        """Of rewards on the unit scale, 0 in the padding."""
        xp, count = groups.xp, groups.count
        distinct = xp.unique_values(unit)
        few = distinct.shape[0] < unit.shape[-1]
        place = xp.searchsorted(distinct, unit) if few else xp.arange(unit.shape[-1], device=device(unit))
        each = (distinct if few else unit) + xp.zeros_like(unit[..., :1])
        total = _total(unit, groups)
        total = xp.concat([total, total - each], axis=-1)
        count = xp.concat([count, xp.clip(count - 1, 0.0, None) + xp.zeros_like(each)], axis=-1)
        return cls(outcomes=_outcomes(total, count, phi[..., None]), place=xp.broadcast_to(place, unit.shape))

    def values(self, sums: Array, weight: Array) -> Array:
        """Values (..., P, G) from the integrals (..., P, 1 + C, M, 2) and the probabilities (..., M) of the rates."""
        xp = namespace(sums)
        each = xp.sum(weight[..., None, None, :] * (sums[..., 1:, :, 1] / sums[..., 1:, :, 0]), axis=-1)
        place = xp.broadcast_to(self.place, (*each.shape[:-1], self.place.shape[-1]))
        return xp.take_along_axis(each, place, axis=-1)


@dataclass(frozen=True, eq=False)
class _Known:
    """What earlier steps say of this one, as in the docstring of the class.

    ``log_prior`` (..., K), the variance of its logit (...,) and ``source`` (..., M, M), all in the precision of
    messages; ``weight`` (..., M), ``dispersion`` (..., 1), which prompts have returned, and which of them count, both
    (..., P), the returns that have passed (...,), and what was kept of each prompt, or None.
    """

    weight: Array
    log_prior: Array
    prior_variance: Array
    source: Array
    dispersion: Array
    returning: Array
    scored: Array
    elapsed: Array
    kept: Belief | None


def _known(grid: LogitGrid, groups: Groups, visits: Visits, now: Array, carry: dict[str, Array]) -> _Known:
    xp = grid.xp
    if visits.lag.shape[-1]:
        newest = xp.min(xp.where(visits.count > 0, visits.lag, xp.full_like(visits.lag, np.inf)), axis=-1)
    else:
        newest = xp.full_like(groups.reward[..., 0], np.inf)
    returning = newest < np.inf
    scored = returning if groups.among is None else returning & groups.among[..., 0]
    lag = xp.where(scored, newest, xp.zeros_like(newest))
    returns = xp.sum(xp.astype(scored, lag.dtype), axis=-1)
    mean_lag = xp.where(returns > 0, xp.sum(lag, axis=-1) / xp.clip(returns, 1.0, None), xp.ones_like(returns))
    since = now - carry["last_scored"]
    since = xp.where((carry["last_scored"] >= 0) & (returns > 0), xp.clip(since, 0.0, None), xp.zeros_like(returns))
    elapsed = since / mean_lag

    weight = xp.exp(carry["log_weight"] - xp.max(carry["log_weight"], axis=-1, keepdims=True))
    weight = weight / xp.sum(weight, axis=-1, keepdims=True)
    prior = carry["prompts"] / xp.sum(carry["prompts"], axis=-1, keepdims=True)
    within, between = carry["dispersion"][..., 0], carry["dispersion"][..., 1]
    phi = xp.where(within > 0, within / xp.where(within > 0, within + between, xp.ones_like(within)), 1.0)
    switched = (1 - SWITCH) ** elapsed[..., None]
    return _Known(
        weight=switched * weight + (1 - switched) * grid.rate_prior,
        log_prior=grid.coarse(xp.log(prior)),
        prior_variance=grid.variance(grid.coarse(prior)),
        source=grid.coarse(grid.sources(weight)),
        dispersion=xp.clip(phi, SMALLEST_DISPERSION, 1.0)[..., None],
        returning=returning,
        scored=scored,
        elapsed=elapsed,
        kept=None if visits.state is None else Belief.unpacked(as_type_of(visits.state, grid.transition)),
    )


def _blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Rows of so many prompts, of those of a shape (..., P), that their messages stay in the cache."""
    *leading, n_prompts = shape
    largest = max(BLOCK // max(math.prod(leading), 1), BLOCK // 8)
    size = math.ceil(n_prompts / max(math.ceil(n_prompts / largest), 1)) or 1
    return (slice(first, first + size) for first in range(0, max(n_prompts, 1), size))


def _prompts_at(grid: LogitGrid, known: _Known, prompts: Array, message: Array, share: Array, groups: Groups) -> Array:
    """Prompts at each logit, discounted, after some steps of EM with those of this step; (..., K)."""
    xp = grid.xp
    kept = PRIOR_DISCOUNT ** known.elapsed[..., None]
    base = kept * prompts + (1 - kept) * PRIOR_COUNT * grid.first_prior
    log_prior, total = known.log_prior, base
    for _ in range(EM_STEPS):
        posterior = message * xp.exp(share[..., None] * log_prior[..., None, :])
        each = share / xp.matmul(posterior, grid.ones)
        each = each if groups.among is None else each * xp.astype(groups.among[..., 0], each.dtype)
        total = base + grid.fine(xp.matmul(each[..., None, :], posterior)[..., 0, :])
        log_prior = grid.coarse(xp.log(total / xp.sum(total, axis=-1, keepdims=True)))
    return total


def _outcomes(total: Array, count: Array, phi: Array) -> Array:
    """Successes and failures, divided by the dispersion; (..., 2)."""
    return namespace(total).stack([total / phi, (count - total) / phi], axis=-1)


def _dispersion_sums(unit: Array, groups: Groups) -> Array:
    """Squares within groups, and ``u (1 - u)`` per degree of freedom; (..., 2)."""
    xp, count = groups.xp, groups.count
    size = xp.clip(count, 1.0, None)
    total = _total(unit, groups)
    off = unit - total / size
    off = off if groups.mask is None else off * groups.present
    mixed = (count - 1) / size * (total - _total(unit * unit, groups))
    return groups.pooled(xp.concat([_total(off * off, groups), mixed], axis=-1))[..., 0, :]


def _total(column: Array, groups: Groups) -> Array:
    """Sum over the completions of each prompt of what is 0 in the padding; (..., P, 1)."""
    column = column if groups.times is None else groups.times * column
    return groups.xp.sum(column, axis=-1, keepdims=True)
