"""Adam's mean squares at one policy: the mean square of each coordinate over batches of policy gradients.

Batch b takes completion b of every prompt, and each prompt's other completions give its baseline: the gradient is
``mean_x (R_xb - mean_{c != b} R_xc) s_xb``. At a policy that stands still this is what Adam's second moment comes to. A
common factor of all parameters does not matter for what is made of it.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from llm_experiments.gradient.scores import score_gradients


def mean_squares(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[Sequence[int]]],
    rewards: np.ndarray,
    *,
    temperature: float,
    done: Callable[[], None] = lambda: None,
) -> dict[nn.Parameter, torch.Tensor]:
    """Mean square of each trained coordinate's gradient over batches.

    rewards (ndarray, shape (P, H)): H at least 2.
    done: Called after each of H batches.
    Raises ValueError if no reward differs from those of the same prompt: then there is no gradient to square.
    """
    rewards = np.asarray(rewards, dtype=float)
    n, h = rewards.shape
    advantages = (rewards - rewards.mean(1, keepdims=True)) * h / (h - 1)  # against the mean of the others
    if not advantages.any():
        raise ValueError(
            f"history: all {h} completions of each of {n} prompts have one reward, so that no gradient moves any "
            "parameter; raise history, or take other prompts."
        )
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    squares = [torch.zeros_like(parameter, dtype=torch.float32) for parameter in trained]
    for batch in range(h):
        total = [torch.zeros_like(each) for each in squares]
        for row in np.flatnonzero(advantages[:, batch]):
            ((_, gradients),) = score_gradients(model, prompts[row], [completions[row][batch]], trained, temperature)
            for each, gradient in zip(total, gradients, strict=True):
                each.add_(gradient, alpha=advantages[row, batch] / n)
        for square, each in zip(squares, total, strict=True):
            square.addcmul_(each, each, value=1 / h)
        done()
    return dict(zip(trained, squares, strict=True))
