"""A Bayes filter on the logit scale whose prior, rate of change and common drift are learned from all prompts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kaestat.arrays import Array, Groups, Visits
from kaestat.baselines.base import Served
from kaestat.baselines.logit_grid import GRID_SIZE, SWITCH, Belief, LogitGrid, first_prior, like, rates_of_change
from kaestat.baselines.reward_range import RangedBaseline

DISCOUNT = 0.9  # on past log likelihoods, per return of the prompts
PRIOR_DISCOUNT, PRIOR_COUNT = 0.8, 8.0  # per return; pseudo-prompts of the first prior
EM_STEPS = 3
SMALLEST_DISPERSION = 0.01
BLOCK = 128  # series of messages whose arrays fit the processor's cache


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
        self._check(groups, visits)
        grid = LogitGrid.like(groups.reward)
        xp = grid.xp
        before = self.initial_carry() if carry is None else carry
        carry = {name: like(array, groups.reward) for name, array in before.items()}
        now = like(step, groups.reward)
        now = now[..., 0, 0] if now.ndim >= 2 else now
        known = _known(grid, groups, visits, now, carry)
        completions = self._completions(grid, groups, known.dispersion)
        leading = groups.leading
        parts = [
            self._seen(grid, known, completions, visits, rows, leading)
            for rows in _blocks(groups.reward.shape[-2], math.prod(leading))
        ]
        value, evidence, mixed, share, state = (
            parts[0][k] if len(parts) == 1 else xp.concat([part[k] for part in parts], axis=axis)
            for k, axis in enumerate((-2, -1, -2, -2, -2))
        )

        scored = xp.where(known.scored[..., None, :], evidence, xp.zeros_like(evidence))
        kept = DISCOUNT ** known.elapsed[..., None]
        first = xp.log(grid.rate_prior)
        log_weight = kept * xp.log(known.weight) + (1 - kept) * first + xp.sum(scored, axis=-1)
        after = {
            "log_weight": log_weight - xp.max(log_weight, axis=-1, keepdims=True),
            "prompts": _prompts_at(grid, known, carry["prompts"], mixed, share, groups),
            "last_scored": xp.where(xp.any(known.scored, axis=-1), now, carry["last_scored"]),
            "dispersion": carry["dispersion"] + self._dispersion_sums(groups),
        }
        values = self.low + (self.high - self.low) * value + xp.zeros_like(groups.reward)
        return Served(values=values, carry=after, settled=self, state=state)

    def _seen(
        self,
        grid: LogitGrid,
        known: _Known,
        completions: _Completions,
        visits: Visits,
        rows: slice,
        leading: tuple[int, ...],
    ) -> tuple[Array, Array, Array, Array, Array]:
        """Of some prompts: values on the unit scale (..., P, G); log predictive likelihoods (..., M, P); their messages
        with all rates mixed (..., P, K), and shares of the prior (..., P, 1), for the next prior; and their states."""
        xp, own, distinct = grid.xp, completions.own[..., rows, :], completions.distinct
        belief = self._belief(grid, known, visits, rows, (*leading, own.shape[-2]))
        likelihood = completions.likelihood[..., rows, :][..., None, :, :]
        posterior = belief.message * belief.share_of_prior(xp.log(known.prior))
        predictive = xp.vecdot(posterior, likelihood) / xp.sum(posterior, axis=-1)

        rest = completions.rest[..., rows, :, :]
        both = xp.moveaxis(xp.concat([rest * grid.success, rest], axis=-2), -1, -2)
        sums = xp.matmul(xp.moveaxis(posterior, -3, -2), both)  # (..., P, M, 2 C)
        size = rest.shape[-2]
        value = xp.sum(known.weight[..., None, :, None] * sums[..., :size] / sums[..., size:], axis=-2)
        if distinct is not None:
            chosen = own[..., None] == distinct
            value = xp.sum(xp.where(chosen, value[..., None, :], xp.zeros_like(value[..., None, :])), axis=-1)
        belief = Belief(message=grid.normalised(belief.message * likelihood), share=belief.share)
        mixing = known.weight[..., None, :]
        flat = xp.reshape(belief.message, (*belief.message.shape[:-2], -1))
        mixed = xp.reshape(xp.matmul(mixing, flat), (*flat.shape[:-2], -1, GRID_SIZE))
        share = xp.matmul(mixing, belief.share)[..., 0, :, None]
        return value, xp.log(predictive), mixed, share, belief.packed()

    def _belief(self, grid: LogitGrid, known: _Known, visits: Visits, rows: slice, shape: tuple[int, ...]) -> Belief:
        """Of some prompts at their present visit: from what is kept, or filtered anew with what is known by now."""
        returning = known.returning[..., rows]
        if visits.state is not None and bool(grid.xp.all(returning)):
            kept = Belief.unpacked(like(visits.state[..., rows, :], grid.logit))
            return kept.moved(grid, known.source, known.prior_variance)
        belief = grid.unknown(shape[-1], shape[:-1])
        if visits.lag.shape[-1] == 0:
            return belief
        if visits.state is not None:
            kept = Belief.unpacked(like(visits.state[..., rows, :], grid.logit)).where(returning, belief)
            return kept.moved(grid, known.source, known.prior_variance).where(returning, belief)
        count = visits.count[..., rows, :]
        total = (visits.total[..., rows, :] - self.low * count) / (self.high - self.low)
        before = grid.xp.zeros_like(count[..., 0]) > 0
        for column in range(count.shape[-1]):
            here = count[..., column] > 0
            likelihood = grid.likelihood(total[..., column] / known.dispersion, count[..., column] / known.dispersion)
            seen = belief.moved(grid, known.source, known.prior_variance).where(before, belief)
            seen = Belief(message=grid.normalised(seen.message * likelihood[..., None, :, :]), share=seen.share)
            belief = seen.where(here, belief)
            before = before | here
        return belief.moved(grid, known.source, known.prior_variance).where(returning, belief)

    def _completions(self, grid: LogitGrid, groups: Groups, phi: Array) -> _Completions:
        xp, own, scale = groups.xp, self._scaled(groups.reward), self.high - self.low
        total = (xp.sum(groups.carried, axis=-1, keepdims=True) - self.low * groups.count) / scale
        # One likelihood serves all completions of equal reward; 0/1 rewards need two.
        distinct = xp.unique_values(own if groups.mask is None else own[groups.mask])
        few = distinct.shape[0] < own.shape[-1]
        each = distinct + xp.zeros_like(own[..., :1]) if few else own
        return _Completions(
            own=own,
            distinct=distinct if few else None,
            likelihood=grid.likelihoods(total[..., 0] / phi, groups.count[..., 0] / phi),
            rest=grid.likelihoods((total - each) / phi[..., None], (groups.count - 1) / phi[..., None]),
        )

    def _scaled(self, reward: Array) -> Array:
        return (reward - self.low) / (self.high - self.low)

    def _dispersion_sums(self, groups: Groups) -> Array:
        """Squares within groups of two or more, and ``u (1 - u)`` per degree of freedom; (..., 2)."""
        xp = groups.xp
        count = groups.count
        unit = xp.where(groups.present > 0, self._scaled(groups.reward), xp.zeros_like(groups.reward))
        mean = xp.sum(unit, axis=-1, keepdims=True) / xp.clip(count, 1.0, None)
        several = xp.astype(count > 1, mean.dtype)
        within = several * xp.sum(groups.present * (unit - mean) ** 2, axis=-1, keepdims=True)
        mixed = several * (count - 1) / xp.clip(count, 1.0, None) * xp.sum(unit * (1 - unit), axis=-1, keepdims=True)
        return groups.pooled(xp.concat([within, mixed], axis=-1))[..., 0, :]

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
class _Completions:
    """Rewards of the step on the unit scale (..., P, G), their distinct values (C,) if these are fewer than the
    completions of a group, the likelihood of the group (..., P, K), and that of the group without a completion of each
    of these values (..., P, C, K), or without each completion."""

    own: Array
    distinct: Array | None
    likelihood: Array
    rest: Array


@dataclass(frozen=True, eq=False)
class _Known:
    """What earlier steps say of this one, as in the docstring of the class.

    ``weight`` (..., M), ``prior`` (..., K) with the variance of its logit (...,), ``source`` (..., M, M),
    ``dispersion`` (..., 1), which prompts have returned, and which of them count, both (..., P), and the returns that
    have passed (...,).
    """

    weight: Array
    prior: Array
    prior_variance: Array
    source: Array
    dispersion: Array
    returning: Array
    scored: Array
    elapsed: Array


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
        prior=prior,
        prior_variance=grid.variance(prior),
        source=grid.sources(weight),
        dispersion=xp.clip(phi, SMALLEST_DISPERSION, 1.0)[..., None],
        returning=returning,
        scored=scored,
        elapsed=elapsed,
    )


def _blocks(n_prompts: int, n_leading: int) -> Iterator[slice]:
    """Rows of so many prompts that their messages stay in the cache."""
    size = max(BLOCK // max(n_leading, 1), BLOCK // 8)
    return (slice(first, first + size) for first in range(0, max(n_prompts, 1), size))


def _prompts_at(grid: LogitGrid, known: _Known, prompts: Array, message: Array, share: Array, groups: Groups) -> Array:
    """Prompts at each logit, discounted, after some steps of EM with those of this step; (..., K)."""
    xp = grid.xp
    kept = PRIOR_DISCOUNT ** known.elapsed[..., None]
    base = kept * prompts + (1 - kept) * PRIOR_COUNT * grid.first_prior
    prior, total = known.prior, base
    for _ in range(EM_STEPS):
        posterior = message * xp.exp(share * xp.log(prior[..., None, :]))
        each = share / xp.sum(posterior, axis=-1, keepdims=True)
        each = each if groups.among is None else each * xp.astype(groups.among, each.dtype)
        total = base + xp.matmul(xp.moveaxis(each, -1, -2), posterior)[..., 0, :]
        prior = total / xp.sum(total, axis=-1, keepdims=True)
    return total
