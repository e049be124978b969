"""Log-probabilities and logit-level score norms of given completions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from .base import Completion


@dataclass(frozen=True)
class TokenScores:
    """What a model says about given completions of one prompt.

    log_probs: For each completion, the log-probability of each token under the tempered distribution.
    logit_norms (np.ndarray, shape (N,)): Squared norm of the score with respect to the tempered logits, summed over
        tokens: ``sum_t (1 - 2 pi_t(y_t) + sum_v pi_t(v)^2)``. A proxy, up to a constant factor, of the squared norm of
        the score with respect to the parameters.
    """

    log_probs: tuple[tuple[float, ...], ...]
    logit_norms: np.ndarray


def completion_log_probs(
    model: PreTrainedModel,
    prompt_ids: Sequence[int],
    completions: Sequence[Completion | Sequence[int]],
    *,
    temperature: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Differentiable log-probabilities of the tokens of completions of one prompt.

    All completions go through the model at once, so the caller chooses the micro-batches; memory is dominated by the
    ``N * T * vocabulary`` logits.

    temperature: Logits are divided by it.
    Returns log_probs (torch.Tensor, shape (N, T), at least float32): Zero beyond the end of each completion.
    Returns mask (torch.Tensor, shape (N, T), bool): True where a completion has a token.
    """
    logits, tokens, mask = completion_logits(model, prompt_ids, completions)
    tempered = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    chosen = tempered.gather(-1, tokens[..., None])[..., 0]
    return torch.where(mask, chosen - tempered.logsumexp(-1), 0.0), mask


@torch.no_grad()
def token_scores(
    model: PreTrainedModel,
    prompt_ids: Sequence[int],
    completions: Sequence[Completion | Sequence[int]],
    *,
    temperature: float,
) -> TokenScores:
    """Log-probabilities and logit-level score norms, without gradients, one completion at a time.

    Raises ValueError if the prompt or a completion is empty.
    """
    log_probs, norms = [], []
    for completion in completions:
        logits, tokens, _ = completion_logits(model, prompt_ids, [completion])
        log_pi = (logits[0].float() / temperature).log_softmax(-1)
        chosen = log_pi.gather(-1, tokens[0, :, None])[:, 0]
        log_probs.append(tuple(chosen.tolist()))
        norms.append((1 - 2 * chosen.exp() + log_pi.exp().square().sum(-1)).double().sum().item())
    return TokenScores(tuple(log_probs), np.array(norms))


def completion_logits(
    model: PreTrainedModel,
    prompt_ids: Sequence[int],
    completions: Sequence[Completion | Sequence[int]],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits that each token of the completions was drawn from, in the model's own type and untempered.

    Returns logits (torch.Tensor, shape (N, T, vocabulary)).
    Returns tokens (torch.Tensor, shape (N, T)): The completions, right-padded with token 0; causal attention makes the
        padding harmless.
    Returns mask (torch.Tensor, shape (N, T), bool).
    Raises ValueError if the prompt or a completion is empty.
    """
    rows = [token_ids(each) for each in completions]
    if not prompt_ids:
        raise ValueError("prompt_ids is empty: the first token of a completion must follow something.")
    if not rows or not all(rows):
        raise ValueError("completions must be at least one, and none of them empty.")
    width = max(map(len, rows))
    tokens = torch.tensor([row + (0,) * (width - len(row)) for row in rows], device=model.device)
    lengths = torch.tensor([len(row) for row in rows], device=model.device)
    mask = torch.arange(width, device=model.device) < lengths[:, None]
    prompt = torch.tensor(prompt_ids, device=model.device)
    inputs = torch.cat([prompt.expand(len(rows), -1), tokens[:, :-1]], dim=1)
    return model(input_ids=inputs, use_cache=False, logits_to_keep=width).logits, tokens, mask


def token_ids(completion: Completion | Sequence[int]) -> tuple[int, ...]:
    """The tokens of a completion, given as such or as bare token ids."""
    return completion.token_ids if isinstance(completion, Completion) else tuple(map(int, completion))
