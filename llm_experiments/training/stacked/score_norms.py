"""Squared norms of whole completions' scores: what a completion's reward weighs in the gradient's noise."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from .model import Parameters, StackedQwen2
from .sampling import tokens_that_count

AT_ONCE = 64  # completions whose gradients are held


def exact_norms(
    model: StackedQwen2,
    parameters: Parameters,
    prompts: torch.Tensor,
    completions: torch.Tensor,
    *,
    end: int,
    temperature: float = 1.0,
) -> torch.Tensor:
    """Squared norm of the gradient of each completion's log-probability in all parameters, shape (runs, rows).

    Each completion is answered by a copy of its run's model, so that the copies' gradients are those of single
    completions.

    Parameters
    ----------
    model : StackedQwen2
    parameters : mapping
    prompts, completions : Tensor of int, shapes (runs, rows, P) and (runs, rows, T)
    end : int
        Token.
    temperature : float
        Of the policy.
    """
    runs, rows = completions.shape[:2]
    run = torch.arange(runs).repeat_interleave(rows)
    found = []
    for owner, asked, drawn in zip(
        run.split(AT_ONCE), prompts.flatten(0, 1).split(AT_ONCE), completions.flatten(0, 1).split(AT_ONCE), strict=True
    ):
        own = {name: each.detach()[owner].requires_grad_() for name, each in parameters.items()}
        logits = model.logits(own, torch.cat([asked, drawn[:, :-1]], 1)[:, None], skip=asked.shape[1] - 1)[:, 0]
        scores = F.log_softmax(logits / temperature, -1).gather(-1, drawn[..., None])[..., 0]
        gradients = torch.autograd.grad((scores * tokens_that_count(drawn, end)).sum(), list(own.values()))
        found.append(torch.stack([each.flatten(1).square().sum(1) for each in gradients]).sum(0))
    return torch.cat(found).view(runs, rows)


def logit_norms(scores: torch.Tensor, own: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """Squared norm of each completion's score with respect to its logits, shape (runs, rows).

    Parameters
    ----------
    scores : Tensor, shape (runs, rows, T, vocabulary)
        Log-probabilities.
    own : Tensor, shape (runs, rows, T)
        Those of the completions' tokens.
    counted : Tensor of bool, shape (runs, rows, T)
    """
    return ((scores.exp().square().sum(-1) - 2 * own.exp() + 1) * counted).sum(-1)
