"""One optimiser step for all runs, each clipped by its own gradient's norm and with a learning rate of its own."""

from collections.abc import Collection, Sequence

import torch

MOMENTS = (0.9, 0.999)
EPSILON = 1e-8
MAX_NORM = 1.0  # of each run's gradient, TRL's default


class StackedOptimizer:
    """AdamW without weight decay of stacked parameters.

    parameters: Runs first.
    rates: Learning rate of each run.
    """

    def __init__(self, parameters: Collection[torch.Tensor], rates: Sequence[float]):
        self._parameters = list(parameters)
        # Each run's part of the stack is a tensor of its own to torch's optimiser, so that it has a rate of its own.
        self._parts = [[each.detach()[run] for run in range(len(rates))] for each in self._parameters]
        groups = [
            {"params": list(own), "lr": rate} for own, rate in zip(zip(*self._parts, strict=True), rates, strict=True)
        ]
        self._torch = torch.optim.AdamW(groups, betas=MOMENTS, eps=EPSILON, weight_decay=0.0, fused=True)

    def step(self, loss: torch.Tensor) -> torch.Tensor:
        """Go down the sum of the runs' losses; returns the norms of their gradients before clipping, shape (runs,)."""
        loss.backward()
        gradients = [each.grad for each in self._parameters]  # every parameter of the model is used
        norms = torch.stack([each.flatten(1).norm(dim=1) for each in gradients]).norm(dim=0)
        factor = (MAX_NORM / (norms + 1e-6)).clamp(max=1.0)
        for gradient, parts in zip(gradients, self._parts, strict=True):
            gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))
            for part, own in zip(parts, gradient, strict=True):
                part.grad = own
        self._torch.step()
        self._torch.zero_grad()
        for each in self._parameters:
            each.grad = None
        return norms

    def squares(self) -> list[torch.Tensor] | None:
        """Squares of what AdamW divides each coordinate by; None before a step.

        As long as a run's rewards are all alike, its gradients are 0 and AdamW's eps is all that it divides by.
        """
        state = self._torch.state
        if not state:
            return None
        steps = float(next(iter(state.values()))["step"])
        unbiased = 1 / (1 - MOMENTS[1] ** steps)
        means = (torch.stack([state[part]["exp_avg_sq"] for part in parts]).mul_(unbiased) for parts in self._parts)
        return [mean.sqrt_().add_(EPSILON).square_() for mean in means]
