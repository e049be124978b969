"""Noise of the policy gradient along a run: how far the gradient of one minibatch lies from its expectation.

At a step's policy, prompts and history, completions are drawn anew, and their advantages taken as training would take
them. Two such gradients ``g, g'`` of ``-(1/N) sum_n A_n log pi(y_n | x_n)`` are independent with the same expectation,
so ``||g - g'||^2 / 2`` is an unbiased estimate of the gradient's mean squared error (its whole variance, which is what
the paper's section 5.1 measures, for a leave-one-out baseline), and ``g . g'`` one of the squared norm of what is
estimated. Their ratio does not depend on how a method scales its advantages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class GradientNoise:
    """Estimates from independent pairs of gradients, one each.

    Attributes
    ----------
    mse : tuple of float
        ``||g - g'||^2 / 2``.
    signal : tuple of float
        ``g . g'``; may be negative.
    """

    mse: tuple[float, ...]
    signal: tuple[float, ...]

    def summary(self) -> dict[str, float]:
        """``gradient_mse, gradient_mse_se, gradient_signal, gradient_signal_se, pairs``."""
        row: dict[str, float] = {}
        for name, values in (("gradient_mse", self.mse), ("gradient_signal", self.signal)):
            row[name] = float(np.mean(values))
            row[f"{name}_se"] = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan
        return row | {"pairs": len(self.mse)}


def gradient_noise(draw: Callable[[int], Sequence[torch.Tensor]], pairs: int) -> GradientNoise:
    """Noise and signal of a gradient that can be drawn as often as wanted; two are held at a time.

    Parameters
    ----------
    draw : callable
        ``draw(k)`` is the k-th independent gradient, a tensor for each parameter.
    pairs : int
    """
    mse, signal = [], []
    for pair in range(pairs):
        one, other = draw(2 * pair), draw(2 * pair + 1)
        mse.append(sum(float((a - b).double().square().sum()) for a, b in zip(one, other, strict=True)) / 2)
        signal.append(sum(float((a.double() * b.double()).sum()) for a, b in zip(one, other, strict=True)))
    return GradientNoise(tuple(mse), tuple(signal))
