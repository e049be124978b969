"""One optimiser step for all runs, each clipped by its own gradient's norm and with a learning rate of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from .config import Optimizer

MOMENTS = (0.9, 0.999)


class StackedOptimizer:
    """AdamW without weight decay, or plain gradient descent, of stacked parameters.

    Both work element by element, so that runs do not meet in them, and their steps are proportional to the learning
    rate: torch's is taken at the rate 1 and each run goes its own part of it.

    Parameters
    ----------
    parameters : collection of Tensor
        Runs first.
    kind : {"adamw", "sgd"}
    rates : sequence of float
        Learning rate of each run.
    max_norm : float
        Each run's gradient is scaled to at most this norm.
    """

    def __init__(self, parameters: Collection[torch.Tensor], kind: Optimizer, rates: Sequence[float], max_norm: float):
        self._parameters, self._max_norm = list(parameters), max_norm
        self._rates = torch.tensor(list(rates), device=self._parameters[0].device)
        # One for each tensor, so that of old values only one tensor's are held.
        self._torch = [_torch_optimizer(each, kind) for each in self._parameters]

    def step(self, loss: torch.Tensor) -> torch.Tensor:
        """Go down the sum of the runs' losses; returns the norms of their gradients before clipping, shape (runs,)."""
        for each in self._parameters:
            each.grad = None
        loss.backward()
        norms = torch.stack([_gradient(each).flatten(1).square().sum(1) for each in self._parameters]).sum(0).sqrt()
        factor = (self._max_norm / (norms + 1e-6)).clamp(max=1.0)
        for each in self._parameters:
            _gradient(each).mul_(_spread(factor, each))
        for each, optimizer in zip(self._parameters, self._torch, strict=True):
            old = each.detach().clone()
            optimizer.step()
            with torch.no_grad():
                each.sub_(old).mul_(_spread(self._rates, each)).add_(old)
        return norms

    def squares(self) -> list[torch.Tensor] | None:
        """AdamW's mean square of each coordinate's gradient, without its bias at the beginning; None before a step."""
        states = [optimizer.state.get(each) for each, optimizer in zip(self._parameters, self._torch, strict=True)]
        if not all(states):
            return None
        return [state["exp_avg_sq"] / (1 - MOMENTS[1] ** float(state["step"])) for state in states if state]


def _torch_optimizer(parameter: torch.Tensor, kind: Optimizer) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD([parameter], lr=1.0)
    return torch.optim.AdamW([parameter], lr=1.0, betas=MOMENTS, weight_decay=0.0, fused=parameter.is_cuda)


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    assert parameter.grad is not None  # every parameter of the model is used
    return parameter.grad


def _spread(of_runs: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return of_runs.view(-1, *[1] * (like.ndim - 1))
