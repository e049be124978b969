"""Random walks on a grid of logits: likelihoods, moves, and what each rate of change believes of each prompt."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from array_api_compat import device

from kaestat.core.arrays import Array, Namespace, namespace

GRID_SIZE, GRID_EDGE = 49, 7.0  # logits -7..7
WALKS = (0.03, 0.08, 0.2, 0.5, 1.2)  # standard deviations per visit, logits
DRIFTS = ((0.1, 0.03),)  # walks with a common drift, and its size, per visit
DRIFTING_SHARE = 0.25  # prior probability of a common drift
SWITCH = 0.02  # probability per visit that another rate of change takes over
PRIOR_SD = 2.0  # of the logits of prompts of which nothing is known
SMALLEST = 1e-30  # of messages and priors: what is ruled out for good could not come back
SMALLEST_VARIANCE = 1e-3
PRECISION = "float32"  # of messages: they are kept in it, and a step costs half as much


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

    Raises
    ------
    ValueError
        If no move by one point has that mean and variance.
    """
    points = logits()
    spacing = points[1] - points[0]
    if walk >= 0.8 * spacing:
        density = np.exp(-0.5 * ((points - points[:, None] - drift) / walk) ** 2)
        return density / density.sum(axis=1, keepdims=True)
    mean, square = drift / spacing, (walk**2 + drift**2) / spacing**2
    moves = {-1: (square - mean) / 2, 0: 1 - square, 1: (square + mean) / 2}
    if min(moves.values()) < 0:
        raise ValueError(f"a walk of {walk} with a drift of {drift} is too fine for the grid.")
    matrix, row = np.zeros((GRID_SIZE, GRID_SIZE)), np.arange(GRID_SIZE)
    for step, probability in moves.items():
        np.add.at(matrix, (row, np.clip(row + step, 0, GRID_SIZE - 1)), probability)
    return matrix


@cache
def logits() -> np.ndarray:
    """The grid, shape (K,)."""
    return np.linspace(-GRID_EDGE, GRID_EDGE, GRID_SIZE)


@cache
def first_prior() -> np.ndarray:
    """Distribution of a logit of which nothing is known, shape (K,)."""
    density = np.exp(-0.5 * (logits() / PRIOR_SD) ** 2)
    return density / density.sum()


@dataclass(frozen=True, eq=False)
class LogitGrid:
    """The grid and the rates of change in the kind of array and on the device of the rewards.

    What is known of all prompts together has the floating type of the rewards, the many numbers known of each prompt
    (its messages, and what meets them) single precision.

    Attributes
    ----------
    xp : namespace
    log_rates : array, shape (2, K)
        ``log p`` and ``log (1 - p)`` at the points.
    first_prior : array, shape (K,)
    rate_prior : array, shape (M,)
    switch : array, shape (M, M)
        Probabilities of the rate of change before a visit (columns) given that after it, but for their weights.
    success, ones : array of single precision, shape (K,)
        ``p`` at the points, and 1.
    moments : array of single precision, shape (K, 2)
        The points and their squares.
    smallest_variance : array of single precision, shape ()
        Of a logit.
    walk_variance : array of single precision, shape (M, 1)
    transition : array of single precision, shape (M, K, K)
    """

    xp: Namespace
    log_rates: Array
    first_prior: Array
    rate_prior: Array
    switch: Array
    success: Array
    ones: Array
    moments: Array
    smallest_variance: Array
    walk_variance: Array
    transition: Array

    @classmethod
    def as_type_of(cls, model: Array) -> LogitGrid:
        """The grid for rewards like these."""
        return _grid(namespace(model), model.dtype, device(model), PRECISION)

    def fine(self, array: Array) -> Array:
        """In the floating type of the rewards."""
        return self.xp.astype(array, self.log_rates.dtype, copy=False)

    def coarse(self, array: Array) -> Array:
        """In that of messages."""
        return self.xp.astype(array, self.transition.dtype, copy=False)

    def likelihood(self, outcomes: Array) -> Array:
        """``p^s (1 - p)^f`` of successes and failures (s, f), relative to its largest; (..., 2) to (..., K)."""
        log = self.xp.matmul(outcomes, self.log_rates)
        log -= self.xp.max(log, axis=-1, keepdims=True)
        return self.xp.exp(self.coarse(log))

    def normalised(self, density: Array) -> Array:
        """The density over the grid that sums to one, with nothing ruled out; shape (..., K); overwritten."""
        density *= 1 / self.xp.matmul(density, self.ones)[..., None]
        density += SMALLEST
        return density

    def variance(self, distribution: Array) -> Array:
        """Variance of the logit in single precision; (..., K) to (...,)."""
        moments = self.xp.matmul(distribution, self.moments)
        return self.xp.maximum(moments[..., 1] - moments[..., 0] ** 2, self.smallest_variance)

    def sources(self, weight: Array) -> Array:
        """Where the prompts of each rate of change come from, if rates may switch; (..., M) to (..., M, M)."""
        source = self.switch * weight[..., None, :]
        return source / self.xp.sum(source, axis=-1, keepdims=True)

    def unknown(self, n_prompts: int, leading: tuple[int, ...]) -> Belief:
        """Of prompts without a past."""
        kept = self.xp.zeros_like(self.walk_variance[:, :, None]) + self.ones / GRID_SIZE
        message = self.xp.broadcast_to(kept, (*leading, kept.shape[0], n_prompts, GRID_SIZE))
        return Belief(message=message, share=self.xp.ones_like(message[..., 0]))


@lru_cache(maxsize=8)
def _grid(xp: Namespace, dtype: Any, where: Any, precision: str) -> LogitGrid:
    rates, points = rates_of_change(), logits()
    fine = {
        "log_rates": -np.stack([np.logaddexp(0.0, -points), np.logaddexp(0.0, points)]),
        "first_prior": first_prior(),
        "rate_prior": rates.prior,
        "switch": (1 - SWITCH) * np.eye(len(rates.prior)) + SWITCH * rates.prior[:, None],
    }
    coarse = {
        "success": 1 / (1 + np.exp(-points)),
        "ones": np.ones(GRID_SIZE),
        "moments": np.stack([points, points**2], axis=-1),
        "smallest_variance": SMALLEST_VARIANCE,
        "walk_variance": rates.walk[:, None] ** 2,
        "transition": rates.transition,
    }
    arrays = {name: xp.asarray(array, dtype=dtype, device=where) for name, array in fine.items()}
    arrays |= {name: xp.asarray(array, dtype=getattr(xp, precision), device=where) for name, array in coarse.items()}
    return LogitGrid(xp=xp, **arrays)


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

    def rows(self, rows: slice) -> Belief:
        """Of some prompts, as views."""
        return Belief(message=self.message[..., rows, :], share=self.share[..., rows])

    def where(self, chosen: Array, other: Belief) -> Belief:
        """This where ``chosen`` (shape (..., P)), elsewhere the other."""
        xp = namespace(self.message)
        if bool(xp.all(chosen)):
            return self
        return Belief(
            message=xp.where(chosen[..., None, :, None], self.message, other.message),
            share=xp.where(chosen[..., None, :], self.share, other.share),
        )

    def posterior(self, log_prior: Array) -> Array:
        """The message times the prior to the power of the share that is left, not normalised; shape (..., M, P, K)."""
        density = namespace(log_prior).exp(self.share[..., None] * log_prior[..., None, None, :])
        density *= self.message
        return density

    def moved(self, grid: LogitGrid, source: Array, prior_variance: Array) -> Belief:
        """One visit on: rates may switch, then logits walk.

        Parameters
        ----------
        grid : LogitGrid
        source : array, shape (..., M, M)
            See `LogitGrid.sources`.
        prior_variance : array, shape (...,)
        """
        xp = grid.xp
        # A prompt's messages lie together in its state, so they are mixed prompt by prompt.
        mixed = xp.matmul(source[..., None, :, :], xp.moveaxis(self.message, -3, -2))
        mixed = xp.moveaxis(mixed, -2, -3)
        share = xp.matmul(source, self.share)
        precision, left = 1 / grid.variance(mixed), share / prior_variance[..., None, None]
        share = share / ((1 + grid.walk_variance * precision) * (1 + grid.walk_variance * (precision + left)))
        return Belief(message=xp.matmul(mixed, grid.transition), share=share)

    @classmethod
    def unpacked(cls, state: Array) -> Belief:
        """Views of the state of each prompt."""
        xp = namespace(state)
        both = xp.moveaxis(xp.reshape(state, (*state.shape[:-1], -1, GRID_SIZE + 1)), -2, -3)
        return cls(message=both[..., :-1], share=both[..., -1])


def as_type_of(array: Any, model: Array) -> Array:
    """``array`` in the kind, floating type and device of the model."""
    return namespace(model).asarray(array, dtype=model.dtype, device=device(model))
