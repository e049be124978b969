"""Log-probabilities and logit-level score norms of given completions, from one forward pass."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import Cache, DynamicCache, PreTrainedModel

from .base import Completion

# Logits that are turned into float32 probabilities at once; a vocabulary of 150,000 gives 220 tokens.
LOGITS_PER_CHUNK = 2**25


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
    share_prompt: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Differentiable log-probabilities of the tokens of completions of one prompt.

    All completions go through the model at once, so the caller chooses the micro-batches; memory is dominated by the
    ``N * T * vocabulary`` logits.

    temperature: Logits are divided by it.
    share_prompt: Whether the prompt is computed once for all completions, which costs ``N - 1`` prompts less. False
        lays out every row as prompt and completion; hooks that attribute activations to rows need that.
    Returns log_probs (torch.Tensor, shape (N, T), float32): Zero beyond the end of each completion.
    Returns mask (torch.Tensor, shape (N, T), bool): True where a completion has a token.
    """
    logits, tokens, mask = completion_logits(model, prompt_ids, completions, share_prompt=share_prompt)
    tempered = logits.float() / temperature
    chosen = tempered.gather(-1, tokens[..., None])[..., 0]
    return torch.where(mask, chosen - tempered.logsumexp(-1), 0.0), mask


@torch.no_grad()
def token_scores(
    model: PreTrainedModel,
    prompt_ids: Sequence[int],
    completions: Sequence[Completion | Sequence[int]],
    *,
    temperature: float,
    batch_tokens: int = 4096,
) -> TokenScores:
    """Log-probabilities and logit-level score norms, without gradients and in bounded memory.

    Completions of like length share a forward pass of at most ``batch_tokens`` padded completion tokens (at least one
    completion). Memory: the ``batch_tokens * vocabulary`` logits in the model's own type, and ``LOGITS_PER_CHUNK``
    float32 probabilities.

    Raises ValueError if ``batch_tokens`` is not positive, or a completion is empty.
    """
    if batch_tokens < 1:
        raise ValueError(f"batch_tokens must be at least 1, got {batch_tokens!r}.")
    rows = [token_ids(each) for each in completions]
    log_probs: list[tuple[float, ...]] = [()] * len(rows)
    norms = np.zeros(len(rows))
    for batch in _micro_batches([len(row) for row in rows], batch_tokens):
        logits, tokens, mask = completion_logits(model, prompt_ids, [rows[n] for n in batch])
        chosen, norm = _scores_of_rows(logits[mask], tokens[mask], temperature)
        lengths = [len(rows[n]) for n in batch]
        for n, row_log_probs, row_norms in zip(batch, chosen.split(lengths), norm.split(lengths), strict=True):
            log_probs[n] = tuple(row_log_probs.tolist())
            norms[n] = row_norms.double().sum().item()
    return TokenScores(tuple(log_probs), norms)


def completion_logits(
    model: PreTrainedModel,
    prompt_ids: Sequence[int],
    completions: Sequence[Completion | Sequence[int]],
    *,
    share_prompt: bool = True,
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
    if share_prompt and len(prompt_ids) > 1:
        cache = prompt_cache(model, [prompt_ids] * len(rows))
        inputs = torch.cat([prompt[-1:].expand(len(rows), 1), tokens[:, :-1]], dim=1)
        return model(input_ids=inputs, past_key_values=cache, use_cache=True).logits, tokens, mask
    inputs = torch.cat([prompt.expand(len(rows), -1), tokens[:, :-1]], dim=1)
    return model(input_ids=inputs, use_cache=False, logits_to_keep=width).logits, tokens, mask


def prompt_cache(model: PreTrainedModel, prompts: Sequence[Sequence[int]]) -> Cache:
    """Keys and values of all but the last token of prompts of one length; what repeats is computed once.

    Differentiable, like the model itself.
    """
    distinct = {tuple(prompt): None for prompt in prompts}
    number = {prompt: index for index, prompt in enumerate(distinct)}
    cache = DynamicCache(config=model.config)
    prefixes = torch.tensor([prompt[:-1] for prompt in distinct], device=model.device)
    model(input_ids=prefixes, past_key_values=cache, use_cache=True, logits_to_keep=1)
    cache.batch_select_indices(torch.tensor([number[tuple(prompt)] for prompt in prompts], device=model.device))
    return cache


def token_ids(completion: Completion | Sequence[int]) -> tuple[int, ...]:
    """The tokens of a completion, given as such or as bare token ids."""
    return completion.token_ids if isinstance(completion, Completion) else tuple(map(int, completion))


def _scores_of_rows(
    logits: torch.Tensor, tokens: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each token and its part of the score norm; ``logits`` has shape (tokens, vocabulary)."""
    chosen, norms = [], []
    rows = max(1, LOGITS_PER_CHUNK // logits.shape[-1])
    for some_logits, some_tokens in zip(logits.split(rows), tokens.split(rows), strict=True):
        log_pi = (some_logits.float() / temperature).log_softmax(-1)
        log_prob = log_pi.gather(-1, some_tokens[:, None])[:, 0]
        chosen.append(log_prob)
        norms.append(1 - 2 * log_prob.exp() + log_pi.exp().square().sum(-1))
    return torch.cat(chosen), torch.cat(norms)


def _micro_batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Indices of completions in batches of at most ``batch_tokens`` padded tokens, longest first."""
    batch: list[int] = []
    for n in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            yield batch
            batch = []
        batch.append(n)
    if batch:
        yield batch
