"""One optimiser step for all runs, each clipped by its own gradient's norm."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .config import StackConfig

MOMENTS = (0.9, 0.999)


def make_optimizer(parameters: Iterable[torch.Tensor], config: StackConfig) -> torch.optim.Optimizer:
    """Of stacked parameters: both optimisers work element by element, so that runs do not meet in them."""
    if config.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=config.learning_rate)
    return torch.optim.AdamW(parameters, lr=config.learning_rate, betas=MOMENTS, weight_decay=0.0)


def clip_each(parameters: Iterable[torch.Tensor], largest: float) -> torch.Tensor:
    """Scale each run's gradient to a norm of at most ``largest``; returns the norms before, shape (runs,)."""
    gradients = [each.grad for each in parameters if each.grad is not None]
    norms = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients]).sum(0).sqrt()
    factor = (largest / (norms + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))
    return norms
