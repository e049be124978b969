"""Sampling of all runs at once, from random numbers that each run draws for itself."""

import torch

from .model import Cache, Parameters, StackedDecoder


@torch.no_grad()
def sample(
    model: StackedDecoder,
    parameters: Parameters,
    prompts: torch.Tensor,
    uniforms: torch.Tensor,
    *,
    end: int,
    pad: int,
    temperature: float = 1.0,
) -> torch.Tensor:
    """Completions, by inverting the distribution function of each next token.

    A run's completions depend on its own numbers only, so they are the same whichever runs are stacked with it.

    prompts: Tensor of int, shape (runs, rows, P).
    uniforms (Tensor, shape (runs, rows, N)): Numbers in [0, 1), one for each token, on any device. Not looked at where
        the temperature is 0.
    end, pad: Tokens: the end of a completion, and what fills it up behind its end.
    temperature: 0 takes the likeliest token.
    Returns Tensor of int, shape (runs, rows, N).
    """
    cache: Cache = []
    tokens, drawn, uniforms = prompts, [], uniforms.to(prompts.device)
    alive = torch.ones(prompts.shape[:2], dtype=torch.bool, device=prompts.device)
    for place in range(uniforms.shape[2]):
        logits = model.logits(parameters, tokens, skip=tokens.shape[2] - 1, cache=cache)[:, :, 0]
        token = logits.argmax(-1) if temperature == 0 else _inverse(logits / temperature, uniforms[:, :, place])
        token = torch.where(alive, token, pad)
        drawn.append(token)
        alive = alive & (token != end)
        tokens = token[..., None]
        if not alive.any():
            break
    completions = torch.full((*prompts.shape[:2], uniforms.shape[2]), pad, device=prompts.device)
    completions[:, :, : len(drawn)] = torch.stack(drawn, 2)
    return completions


def tokens_that_count(completions: torch.Tensor, end: int) -> torch.Tensor:
    """True up to and with the end of each completion."""
    ended = completions == end
    return torch.cumsum(ended, -1) - ended.long() == 0


def _inverse(logits: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    mass = logits.softmax(-1).cumsum(-1)
    return (mass <= uniform[..., None] * mass[..., -1:]).sum(-1).clamp_(max=logits.shape[-1] - 1)
