"""Scores of candidate bandwidths, kept and discounted from step to step instead of recomputed from all visits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from kaestat.core.arrays import Array, Groups, Visits, as_like
from kaestat.smoothing.kernels import Kernel
from kaestat.smoothing.selectors.smoothing import as_numpy

ROUNDING = 1e-12  # relative to the squared rewards or the largest loss: losses nearer than this are equal
SPANS = 20.0  # the largest candidate, in spans of the visits: a triangular kernel gives all equal weights
NEGLIGIBLE = 1e-6  # share
UNBOUNDED_REACH = 4.0  # gaps over smallest bandwidth for kernels of unbounded support, whose weight fades to nothing
SLOWER = 8.0  # times: how much more slowly the losses of ways are forgotten
DISCOUNT = 0.7  # on the past scores for each return of the prompts: it remembers about three
PRIOR_PER_OCTAVE = 0.35  # log share that a candidate loses for each factor of two from the rule of thumb
CANDIDATES = 2.0 ** (np.arange(-12, 56) * 2 / 3)  # the last is more than 20 times the largest step number


class Lags(NamedTuple):
    """The lags of one step's visits."""

    newest: np.ndarray  # shape (..., P); lag to the newest visit of positive mass, inf where there is none
    returning: np.ndarray  # of bool, shape (..., P); whether there is one
    nearest: np.ndarray  # shape (...); the least of them; inf without any
    oldest: np.ndarray  # shape (...); the largest lag of any visit; 0 without any

    @classmethod
    def of(cls, visits: Visits) -> Self:
        """Of the past of a step's groups."""
        lag, there = as_numpy(visits.lag), as_numpy(visits.mass) > 0
        newest, oldest = np.where(there, lag, math.inf), np.where(there, lag, 0.0)
        newest, oldest = newest.min(axis=-1, initial=math.inf), oldest.max(axis=-1, initial=0.0)
        nearest = newest.min(axis=-1, initial=math.inf)
        return cls(newest, newest < math.inf, nearest, oldest.max(axis=-1, initial=0.0))


@dataclass(frozen=True)
class Ahead:
    """The candidates of one step, on a leading axis over which values broadcast."""

    bandwidths: Array  # shape (B,) + (1,) * number of axes of the rewards; in steps
    shares: Array  # shape (K B, ..., 1, 1); of the values in the mixture, for each of K ways to use a bandwidth
    within: np.ndarray  # shape (..., K, B); shares of the bandwidths within each way
    place: np.ndarray  # of int, shape (B,); positions of the candidates among all (`RunningScores.candidates`)
    # of int, shape (...); first and last of the candidates that differ for the visits of each leading index
    lowest: np.ndarray
    highest: np.ndarray
    mean_lag: np.ndarray  # shape (...); mean lag of the prompts' newest visits, in steps
    lags: Lags

    def pairs(self) -> list[tuple[Array, Array]]:
        """Bandwidths with their shares, as from `Selector.resolve`, without negligible shares.

        The shares of a bandwidth's ways are summed.
        """
        n = len(self.place)
        shares = sum((self.shares[way : way + n] for way in range(n, len(self.shares), n)), self.shares[:n])
        shares = shares * (shares > NEGLIGIBLE)
        counted = (as_numpy(shares).reshape(n, -1) > 0).any(axis=1)
        return [(self.bandwidths[place], shares[place]) for place in np.flatnonzero(counted).tolist()]


@dataclass(frozen=True)
class RunningScores:
    """Leave-one-out losses of all candidates, pooled over prompts and discounted, and the shares from them.

    After each step, every candidate's values of prompts with a past are scored on the step's rewards. The losses D and
    the number N of completions scored are discounted once per return of the prompts, which takes the mean lag to their
    newest visits. The page of bandwidth selectors has the equations (``auto``). Bandwidths of the rule of thumb are
    given in mean lags to the newest visits.

    A baseline may have several ways to use a bandwidth (`kaestat.baselines.kae_eb`). Each has its losses and shares,
    and the ways are mixed by the losses of their mixtures in the same manner, with a discount eight times slower:
    the best way depends on the run. Before the first score the first way is used.

    Beyond the ends of the candidates values do not change, so a candidate that is added when gaps shrink or the span
    grows starts with the loss of the candidate at the end. ``grid`` holds candidates in steps, instead of the default
    ones.
    """

    grid: tuple[float, ...] | None = None

    @property
    def candidates(self) -> np.ndarray:
        """All bandwidths that it can ever choose, increasing."""
        return CANDIDATES if self.grid is None else np.asarray(self.grid)

    def initial_carry(self, ways: int = 1) -> dict[str, np.ndarray]:
        """Losses D, and (N, sum of W Z^2 discounted as N, first step, last scored step, shortest gap); -1 for none.

        With several ways, each has its losses D, and (N, sum of W Z^2, losses of their mixtures) is discounted slowly.
        """
        carry = {"loss": np.zeros(ways * len(self.candidates)), "scored": np.array([0.0, 0.0, -1.0, -1.0, -1.0])}
        return carry if ways == 1 else carry | {"ways": np.zeros(2 + ways)}

    def ahead(
        self,
        carry: dict[str, np.ndarray],
        groups: Groups,
        visits: Visits,
        *,
        step: int | Array,
        kernel: Kernel,
        rule: float,
        ways: int = 1,
    ) -> Ahead:
        """The candidates of a step and their shares, computed from earlier steps alone.

        Only the shape of ``groups`` is used. ``rule`` is the bandwidth for few visits, in mean lags to the newest
        visit. A carry of one way is used for each of ``ways``; if that is 1, the first way of a carry of several is
        used.
        """
        leading = tuple(groups.reward.shape[:-2])
        now = _reduced(step, leading)
        lags = Lags.of(visits)
        scores = np.broadcast_to(carry["scored"], (*leading, 5))
        carry = self._of_ways(carry, ways)
        loss = np.broadcast_to(carry["loss"], (*leading, ways * len(self.candidates)))
        first, gap = scores[..., 2], scores[..., 4]

        n = lags.returning.sum(axis=-1)
        mean_lag = np.where(n > 0, np.where(lags.returning, lags.newest, 0.0).sum(axis=-1) / np.maximum(n, 1), 1.0)
        gap = np.minimum(np.where(gap > 0, gap, math.inf), lags.nearest)
        gap = np.where(gap < math.inf, gap, 1.0)
        span = np.maximum(np.where(first >= 0, now - first, 0.0), np.maximum(lags.oldest, gap))

        lowest, highest = self._ends(gap, span, kernel)
        place = np.arange(lowest.min(), highest.max() + 1)
        bandwidths = self.candidates[place]

        distance = np.abs(np.log2(bandwidths / (rule * mean_lag)[..., None]))
        by_way = loss.reshape(*leading, ways, len(self.candidates))
        log_share = (
            _log_likelihood(by_way, scores[..., None, :])[..., place] - PRIOR_PER_OCTAVE * distance[..., None, :]
        )
        unscored = scores[..., :1] == 0
        if unscored.any():
            far = distance > distance.min(axis=-1, keepdims=True)
            log_share = np.where((unscored & far)[..., None, :], -math.inf, log_share)
        among = (place >= lowest[..., None]) & (place <= highest[..., None])
        within = _shares(np.where(among[..., None, :], log_share, -math.inf))
        share = within
        if ways > 1:
            of_ways = np.broadcast_to(carry["ways"], (*leading, 2 + ways))
            log_way = _log_likelihood(of_ways[..., 2:], of_ways)
            log_way = np.where((of_ways[..., :1] == 0) & (np.arange(ways) > 0), -math.inf, log_way)
            share = within * _shares(log_way)[..., None]
        share = share.reshape(*leading, ways * len(place))
        ones = (1,) * (len(leading) + 2)
        return Ahead(
            bandwidths=as_like(bandwidths.reshape(-1, *ones), visits.lag),
            shares=as_like(np.moveaxis(share, -1, 0)[..., None, None], visits.lag),
            within=within,
            place=place,
            lowest=lowest,
            highest=highest,
            mean_lag=mean_lag,
            lags=lags,
        )

    def after(
        self, carry: dict[str, np.ndarray], ahead: Ahead, values: Array, groups: Groups, *, step: int | Array
    ) -> dict[str, np.ndarray]:
        """The carry after the rewards of a step are known.

        ``values`` are those of every candidate, way by way, shape (K B, ..., P, G).
        """
        leading, lags = tuple(groups.reward.shape[:-2]), ahead.lags
        now = _reduced(step, leading)
        mass, reward = as_numpy(groups.mass), as_numpy(groups.reward)
        error = reward - as_numpy(values)
        reward, error = (np.where(mass > 0, array, 0.0) for array in (reward, error))
        scored = lags.returning.astype(float)

        def losses(error: np.ndarray) -> np.ndarray:
            squares = np.einsum("...g,...g->...", error, mass * error)
            return np.moveaxis(_total(squares, scored), 0, -1)

        loss, square = losses(error), _total((mass * reward**2).sum(axis=-1), scored)
        count, pace = _informed(groups, scored)
        ways = loss.shape[-1] // len(ahead.place)
        carry, mixed = self._of_ways(carry, ways), {}
        scores = np.broadcast_to(carry["scored"], (*leading, 5))
        first, last, gap = scores[..., 2], scores[..., 3], scores[..., 4]
        elapsed = np.where(last >= 0, np.maximum(now - last, 0.0), 0.0) / ahead.mean_lag
        if ways > 1:
            slowly = np.where(count > 0, DISCOUNT ** (elapsed * pace / SLOWER), 1.0)[..., None]
            of_way = np.einsum("...kb,kb...pg->k...pg", ahead.within, error.reshape(ways, -1, *error.shape[1:]))
            new = np.concatenate([count[..., None], square[..., None], losses(of_way)], axis=-1)
            mixed = {"ways": slowly * carry["ways"] + new}
        n_each, number = len(ahead.place), np.arange(len(self.candidates))
        place = np.minimum(np.maximum(number, ahead.lowest[..., None]), ahead.highest[..., None]) - ahead.place[0]
        place = np.broadcast_to(place[..., None, :], (*leading, ways, len(number)))
        loss = np.take_along_axis(loss.reshape(*leading, ways, n_each), place, axis=-1)
        loss = loss.reshape(*leading, ways * len(number))

        any_scored = count > 0
        kept = np.where(any_scored, DISCOUNT ** (elapsed * pace), 1.0)
        nearest = np.where(lags.nearest < math.inf, lags.nearest, gap)
        after = np.empty((*leading, 5))
        after[..., 0] = kept * scores[..., 0] + count
        after[..., 1] = kept * scores[..., 1] + square
        after[..., 2] = np.where(first >= 0, first, now)
        after[..., 3] = np.where(any_scored, now, last)
        after[..., 4] = np.where(gap > 0, np.minimum(gap, nearest), nearest)
        return {"loss": kept[..., None] * carry["loss"] + loss, "scored": after} | mixed

    def of_step(
        self, ahead: Ahead, values: Array, groups: Groups, *, step: int, kernel: Kernel
    ) -> dict[str, np.ndarray]:
        """The scores of one step apart, for `joined`: its `after` had there been none before, and its ``pace``.

        They depend on the step and its visits alone: ``ahead`` only says which candidates the values are of. The pace
        is how many returns of the prompts a step counts as. Arguments are as for `after`, without leading axes.
        """
        lags = ahead.lags
        gap = np.where(lags.nearest < math.inf, lags.nearest, 1.0)
        lowest, highest = self._ends(gap, np.maximum(lags.oldest, gap), kernel)
        apart = replace(ahead, lowest=np.maximum(lowest, ahead.place[0]), highest=np.minimum(highest, ahead.place[-1]))
        fresh = self.initial_carry(ways=len(values) // len(ahead.place))
        _, pace = _informed(groups, lags.returning.astype(float))
        return self.after(fresh, apart, values, groups, step=step) | {"pace": pace / ahead.mean_lag}

    def joined(self, scores: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The carry after several steps, oldest first, from the scores of each (`of_step`).

        It has no first step: the span of a later step is that of its visits.
        """
        if not scores:
            return self.initial_carry()
        each = {name: np.stack([of_step[name] for of_step in scores]) for name in scores[0]}
        scored = each["scored"]
        counted = np.flatnonzero(scored[:, 0] > 0)
        returns = np.zeros(len(scored) + 1)  # of the prompts, from the scored step before
        returns[counted[1:]] = np.diff(scored[counted, 3]) * each["pace"][counted[1:]]
        kept = DISCOUNT ** np.cumsum(returns[:0:-1])[::-1]
        gaps = scored[scored[:, 4] > 0, 4]
        sums = kept @ scored[:, :2]
        ends = [-1.0, scored[counted[-1], 3] if len(counted) else -1.0, gaps.min() if len(gaps) else -1.0]
        ways = {"ways": kept ** (1 / SLOWER) @ each["ways"]} if "ways" in each else {}
        return {"loss": kept @ each["loss"], "scored": np.array([*sums, *ends])} | ways

    def _ends(self, gap: np.ndarray, span: np.ndarray, kernel: Kernel) -> tuple[np.ndarray, np.ndarray]:
        """The first and last candidates that differ for visits with a shortest gap and a span, in steps."""
        last = np.full(gap.shape, len(self.candidates) - 1)
        if self.grid is not None:
            return np.zeros(gap.shape, dtype=int), last
        support = kernel.support if math.isfinite(kernel.support) else UNBOUNDED_REACH
        lowest = np.maximum(np.searchsorted(self.candidates, gap / support, side="right") - 1, 0)
        return lowest, np.minimum(np.searchsorted(self.candidates, SPANS * span), last)

    def _of_ways(self, carry: dict[str, np.ndarray], ways: int) -> dict[str, np.ndarray]:
        """The carry of one way, until now, as that of each of several; of several, the first where one is asked for."""
        if ways == 1 and "ways" in carry:
            return {"loss": carry["loss"][..., : len(self.candidates)], "scored": carry["scored"]}
        if ways == 1 or "ways" in carry:
            return carry
        return carry | {"loss": np.concatenate([carry["loss"]] * ways, axis=-1), "ways": np.zeros(2 + ways)}


def _informed(groups: Groups, scored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Completions of the scored prompts, of equal weights as informative as theirs, and their share of all; (...)."""
    mass = as_numpy(groups.mass)
    present = mass if groups.weight is None else as_numpy(groups.present) * (mass > 0)
    count = number = _total(present.sum(axis=-1), scored)
    if groups.weight is not None:
        squared = _total(np.sum(mass**2, axis=-1), scored)
        count = _total(np.sum(mass, axis=-1), scored) ** 2 / np.where(squared > 0, squared, 1.0)
    return count, count / np.where(number > 0, number, 1.0)


def _total(of_prompts: np.ndarray, scored: np.ndarray) -> np.ndarray:
    return np.einsum("...p,...p->...", of_prompts, scored)


def _log_likelihood(loss: np.ndarray, scores: np.ndarray) -> np.ndarray:
    least = np.min(loss, axis=-1, keepdims=True)
    largest = np.maximum(np.max(loss, axis=-1, keepdims=True), scores[..., 1:2])
    unit = np.maximum(least, ROUNDING * largest)  # errors below rounding are not errors
    return -0.5 * scores[..., :1] * (loss - least) / np.where(unit > 0, unit, 1.0)


def _shares(log_share: np.ndarray) -> np.ndarray:
    share = np.exp(log_share - log_share.max(axis=-1, keepdims=True))
    return share / share.sum(axis=-1, keepdims=True)


def _reduced(step: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The step without its two last axes (prompts and completions), if it has any, in the shape of the leading axes."""
    array = as_numpy(step)
    return np.broadcast_to(array[..., 0, 0] if array.ndim >= 2 else array, shape)
