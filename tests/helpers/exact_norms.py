"""Squared norms of the scores of completions that are given, in a stack of models."""

import torch

from llm_experiments.training.stacked.sampling import tokens_that_count
from llm_experiments.training.stacked.score_norms import tapped_norms


def exact_norms(model, parameters, prompts, completions, *, end, temperature=1.0):
    """By `tapped_norms`, shape (runs, rows)."""
    own, taps = {name: each.detach().requires_grad_() for name, each in parameters.items()}, []
    tokens = torch.cat([prompts, completions[:, :, :-1]], 2)
    logits = model.logits(own, tokens, skip=prompts.shape[2] - 1, taps=taps)
    scores = (logits / temperature).log_softmax(-1).gather(-1, completions[..., None])[..., 0]
    return tapped_norms((scores * tokens_that_count(completions, end)).sum(2), taps)
