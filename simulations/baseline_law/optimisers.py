"""Optimisers on a matrix of parameters, many runs at once, and the units in which each takes its step.

Parameters and gradients have shape (S, r, c, K); all of them ascend. The *units* of an optimiser say how noise in the
gradient becomes noise in the step: with the linear part L of the step's dependence on the gradient, a completion's
score counts ``W = ||L(s)||^2``.

- SGD: L is the identity.
- AdamW: the step divides by ``sqrt(v)``, whose memory of 1,000 steps makes it a constant beside one gradient, so
  ``W = sum_ij s_ij^2 / v_ij``.
- Muon: the step is the polar factor of the momentum M, ``O = (M M')^{-1/2} M = M (M' M)^{-1/2}``, so the same matrix is
  signal, noise and its own scale, and no constant divides it. What counts is the mean response of O to a small signal
  under the noise ``N = P^{1/2} Z Q^{1/2}`` (Z standard normal). By Gaussian integration by parts that is
  ``E[dO_ij / dM_ij] = E[O_ij N_ij] / (p_i q_j)`` in the eigenvectors of P and Q. If M has many more columns than rows,
  ``M M'`` is near its mean, and the response is a left preconditioner ``p_i^{-1/2}``: the right side drops out, since
  ``M' M`` has no inverse and never nears its mean. If M is square, neither side is near its mean, the two forms of O
  weigh alike, and the response lies between Shampoo's ``(p_i q_j)^{-1/4}`` (each side's mean under half of the root)
  and ``(p_i q_j)^{-1/2}``. Monte Carlo gives ``(p_i q_j)^{-.41}`` for the polar factor and -.37 for five steps of
  Newton-Schulz (8 x 8, condition 16; `tests/simulations/baseline_law`). So ``L(s) = P^{-a} s Q^{-a}`` with a = .4, and
  ``W = (u' P^{-2a} u) (d' Q^{-2a} d)`` for a score ``s = u d'``. P and Q are running means of ``M M'`` and ``M' M``.

Units are scaled to a mean of 1 over the parameters: a constant factor of W changes no baseline, and weights of
different steps stay comparable.

References
----------
Loshchilov and Hutter (2019), Decoupled weight decay regularization. Here the decay is 0.
Jordan et al. (2024), Muon: an optimizer for hidden layers in neural networks; its momentum, coefficients and steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

FIRST_DECAY, SECOND_DECAY, ADAM_EPS = 0.9, 0.999, 1e-8
MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS, MUON_EPS = 5, 1e-7
SIDES_DECAY, SIDES_EXPONENT = 0.99, 0.4
RIDGE = 1e-3  # of the mean eigenvalue: a few gradients do not span the matrix


class Units(Protocol):
    """Squared lengths in the units of a step."""

    def of_scores(self, u: np.ndarray, d: np.ndarray) -> np.ndarray:
        """``||L(u d')||^2`` for u of shape (S, P, r) and d of shape (S, P, ..., c, K): shape (S, P, ..., K)."""

    def of_matrix(self, g: np.ndarray) -> np.ndarray:
        """``||L(g)||^2`` for g of shape (S, r, c, K): shape (S, K)."""


@dataclass(frozen=True, eq=False)
class Diagonal:
    """Every parameter has a unit of its own.

    Attributes
    ----------
    scale : ndarray, shape (S, r, c, K)
        Squared units, of mean 1.
    """

    scale: np.ndarray

    def of_scores(self, u: np.ndarray, d: np.ndarray) -> np.ndarray:
        runs, rows, columns, arms = self.scale.shape
        along = (u**2 @ self.scale.reshape(runs, rows, columns * arms)).reshape(*u.shape[:2], columns, arms)
        along = along.reshape(*u.shape[:2], *[1] * (d.ndim - 4), columns, arms)
        return np.einsum("...ck,...ck->...k", d**2, np.broadcast_to(along, d.shape))

    def of_matrix(self, g: np.ndarray) -> np.ndarray:
        return (self.scale * g**2).sum(axis=(1, 2))


@dataclass(frozen=True, eq=False)
class TwoSided:
    """Rows and columns are mixed: ``L(s) = left s right``.

    Attributes
    ----------
    left : ndarray, shape (S, r, r, K)
    right : ndarray, shape (S, c, c, K)
    """

    left: np.ndarray
    right: np.ndarray

    def of_scores(self, u: np.ndarray, d: np.ndarray) -> np.ndarray:
        runs, size, _, arms = self.left.shape
        rows = ((u @ self.left.reshape(runs, size, size * arms)).reshape(*u.shape[:2], size, arms) ** 2).sum(axis=2)
        flat = d.reshape(runs, -1, *d.shape[-2:])  # (S, n, c, K)
        moved = np.moveaxis(np.moveaxis(flat, -1, 1) @ np.moveaxis(self.right, -1, 1), 1, -1)
        columns = (moved**2).sum(axis=-2).reshape(*d.shape[:-2], arms)
        return rows.reshape(*u.shape[:2], *[1] * (d.ndim - 4), arms) * columns

    def of_matrix(self, g: np.ndarray) -> np.ndarray:
        left, right, matrix = (np.moveaxis(part, -1, 1) for part in (self.left, self.right, g))
        return ((left @ matrix @ right) ** 2).sum(axis=(2, 3))


class Optimiser(Protocol):
    """Ascent; made for parameters of shape (S, r, c, K) and rates that broadcast to it."""

    def move(self, gradient: np.ndarray) -> np.ndarray:
        """What is added to the parameters."""

    def units(self, arms: slice) -> Units:
        """Units of some arms' next step, from the past alone; plain ones before the first."""


class Sgd:
    """``rate * gradient``.

    Parameters
    ----------
    rate : ndarray broadcastable to the parameters
    shape : tuple of int
        (S, r, c, K).
    """

    def __init__(self, rate: np.ndarray, shape: tuple[int, ...]):
        self.rate, self.shape = rate, shape

    def move(self, gradient: np.ndarray) -> np.ndarray:
        return self.rate * gradient

    def units(self, arms: slice) -> Units:
        return plain_units(self.shape, arms, self.rate.dtype)


class AdamW:
    """``rate * m / (sqrt(v) + eps)`` with bias corrections, and no decay."""

    def __init__(self, rate: np.ndarray, shape: tuple[int, ...]):
        self.rate, self.steps = rate, 0
        self.first, self.second = np.zeros(shape, rate.dtype), np.zeros(shape, rate.dtype)

    def move(self, gradient: np.ndarray) -> np.ndarray:
        self.steps += 1
        self.first += (1 - FIRST_DECAY) * (gradient - self.first)
        self.second += (1 - SECOND_DECAY) * (gradient**2 - self.second)
        first = self.first / (1 - FIRST_DECAY**self.steps)
        return self.rate * first / self._root(slice(None))

    def units(self, arms: slice) -> Units:
        if self.steps == 0:
            return plain_units(self.second.shape, arms, self.rate.dtype)
        scale = self._root(arms) ** -2
        return Diagonal(scale / scale.mean(axis=(1, 2), keepdims=True))

    def _root(self, arms: slice) -> np.ndarray:
        return np.sqrt(self.second[..., arms] / (1 - SECOND_DECAY**self.steps)) + ADAM_EPS


class Muon:
    """``rate * NewtonSchulz(gradient + .95 B)`` with the momentum ``B <- .95 B + gradient``, and no decay."""

    def __init__(self, rate: np.ndarray, shape: tuple[int, ...]):
        runs, rows, columns, arms = shape
        self.rate, self.shape, self.steps = rate, shape, 0
        self.momentum = np.zeros(shape, rate.dtype)
        self.of_rows = np.zeros((runs, arms, rows, rows), rate.dtype)
        self.of_columns = np.zeros((runs, arms, columns, columns), rate.dtype)

    def move(self, gradient: np.ndarray) -> np.ndarray:
        self.steps += 1
        self.momentum = MOMENTUM * self.momentum + gradient
        matrix = np.moveaxis(gradient + MOMENTUM * self.momentum, -1, 1)
        turned = np.swapaxes(matrix, -1, -2)
        self.of_rows += (1 - SIDES_DECAY) * (matrix @ turned - self.of_rows)
        self.of_columns += (1 - SIDES_DECAY) * (turned @ matrix - self.of_columns)
        longer = max(1.0, self.shape[1] / self.shape[2]) ** 0.5
        return self.rate * longer * np.moveaxis(orthogonalised(matrix), 1, -1)

    def units(self, arms: slice) -> Units:
        if self.steps == 0:
            return plain_units(self.shape, arms, self.rate.dtype)
        sides = (self.of_rows[:, arms], self.of_columns[:, arms])
        return TwoSided(*(np.moveaxis(_inverse_power(side), 1, -1) for side in sides))


OPTIMISERS: dict[str, type[Sgd] | type[AdamW] | type[Muon]] = {"sgd": Sgd, "adamw": AdamW, "muon": Muon}


def plain_units(shape: tuple[int, ...], arms: slice = slice(None), dtype: np.dtype | type = float) -> Units:
    """Every parameter counts alike."""
    return Diagonal(np.ones(shape, dtype)[..., arms])


def orthogonalised(matrix: np.ndarray) -> np.ndarray:
    """Five Newton-Schulz steps towards the polar factor of matrices of shape (..., r, c)."""
    first, second, third = NEWTON_SCHULZ
    norm = np.sqrt((matrix**2).sum(axis=(-2, -1), keepdims=True))
    matrix = matrix / np.maximum(norm, MUON_EPS)
    tall = matrix.shape[-2] > matrix.shape[-1]
    matrix = np.swapaxes(matrix, -1, -2) if tall else matrix
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = matrix @ np.swapaxes(matrix, -1, -2)
        matrix = first * matrix + (second * gram + third * gram @ gram) @ matrix
    return np.swapaxes(matrix, -1, -2) if tall else matrix


def _inverse_power(side: np.ndarray) -> np.ndarray:
    """``side^{-a}`` of symmetric matrices (..., n, n), scaled so that the squares of its eigenvalues have mean 1."""
    values, vectors = np.linalg.eigh(side)
    values = np.maximum(values, 0.0)
    values = values + RIDGE * values.mean(axis=-1, keepdims=True) + np.finfo(side.dtype).tiny
    power = (values / values.mean(axis=-1, keepdims=True)) ** -SIDES_EXPONENT
    power = power / np.sqrt((power**2).mean(axis=-1, keepdims=True))
    return (vectors * power[..., None, :]) @ np.swapaxes(vectors, -1, -2)
