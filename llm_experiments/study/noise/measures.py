"""Noise and signal of updates that have been drawn several times, without bias.

Of R draws u_r of an update, with mean u and covariance S ::

    tr S    =  sum_r ||u_r - ubar||^2 / (R - 1)
    ||u||^2 =  sum_{r != s} <u_r, u_s> / (R (R - 1))

both follow from the draws' inner products alone. ``tr S / ||u||^2`` does not depend on the scale of an update: it is
the number of such updates whose mean has as much noise as signal (McCandlish et al., 2018, "An empirical model of
large-batch training", call B times it the simple noise scale).
"""

from __future__ import annotations

import torch


def noise_and_signal(draws: torch.Tensor) -> tuple[float, float]:
    """``tr S`` and ``||u||^2``, both without bias; the second may be negative.

    Parameters
    ----------
    draws : Tensor, shape (R, D)
        R at least 2.
    """
    n = len(draws)
    squares = float(draws.square().sum())
    total = float(draws.sum(0).square().sum())
    return (squares - total / n) / (n - 1), (total - squares) / (n * (n - 1))


def cosine(draws: torch.Tensor, others: torch.Tensor) -> float:
    """Of the means of two updates, from draws that are independent of each other, shapes (R, D) and (S, D)."""
    inner = float(draws.mean(0) @ others.mean(0))
    norms = noise_and_signal(draws)[1] * noise_and_signal(others)[1]
    return inner / norms**0.5 if norms > 0 else float("nan")


def as_adam(draws: torch.Tensor) -> torch.Tensor:
    """Draws in the units that Adam takes them in: each coordinate over the root of its mean square, shape (R, D).

    That is what Adam's second moment comes to at a fixed policy; without the first moment, which changes neither the
    mean of many updates nor what their noise adds up to. Coordinates that never move stay 0.
    """
    scale = draws.square().mean(0).sqrt()
    return draws / torch.where(scale > 0, scale, 1.0)
