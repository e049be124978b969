"""Muon's units of a matrix's gradient: how far the gradient moves Muon's step.

Muon's step is ``U V'``, from the momentum ``M = U S V'``. To first order, a small d added to M moves the step by
``(d'_ij - d'_ji) / (s_i + s_j)`` in the bases U and V, with ``d' = U' d V``; the part of d outside U (or V) moves it by
itself over s. Both follow from the polar decomposition: ``M = Q H`` gives ``d = dQ H + Q dH`` with ``Q' dQ``
antisymmetric and dH symmetric.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

FLOOR = 1e-3  # of the mean of squared singular values, added to each; Newton-Schulz's steps do not reach small ones


@dataclass(frozen=True, eq=False)
class Bases:
    """A momentum's singular vectors and values, with the floor; infinite values for a momentum of 0."""

    left: torch.Tensor  # shape (m, r)
    values: torch.Tensor  # shape (r,)
    right: torch.Tensor  # shape (n, r)
    size: float  # square of the number by which Muon multiplies steps of this shape

    @classmethod
    def of(cls, momentum: torch.Tensor, settings: Mapping[str, Any]) -> Bases:
        """Bases of a momentum, shape (m, n), whole, with the settings of its parameter group."""
        left, values, right = torch.linalg.svd(momentum.float(), full_matrices=False)
        square = values.square()
        values = (square + FLOOR * square.mean()).sqrt()
        return cls(left, values.where(values > 0, torch.inf), right.T, _size(settings["adjust_lr_fn"], *momentum.shape))

    def norms(self, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        """Squared norms of rows' gradients ``sum_t g_t x_t'`` in these units, shape (B,), float32.

        ``x``, shape (B, T, n), went into the matrix, and ``g``, shape (B, T, m), came back.
        """
        return torch.stack([self._norm(into.float(), back.float()) for into, back in zip(x, g, strict=True)])

    def _norm(self, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        back, into = g @ self.left, x @ self.right
        inside = back.T @ into
        found = ((inside - inside.T) / (self.values[:, None] + self.values)).square().sum()
        if len(self.left) > len(self.values):
            found = found + ((g - back @ self.left.T).T @ (into / self.values)).square().sum()
        elif len(self.right) > len(self.values):
            found = found + ((back / self.values).T @ (x - into @ self.right.T)).square().sum()
        return found * self.size


def _size(adjusted: str | None, rows: int, columns: int) -> float:
    if adjusted == "match_rms_adamw":
        return 0.04 * max(rows, columns)
    return max(1.0, rows / columns)
