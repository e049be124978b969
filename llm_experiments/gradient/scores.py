"""Scores of pooled completions, the gradients of their log-probabilities: one backward pass for each.

With ``s_h = grad_theta log pi(y_h | x)``, every policy gradient estimated from a pool is ``-sum_h c_h s_h``, and
``||ghat - gref||^2 = (c - cref)' S S' (c - cref)``. So any number of methods and repeats needs the Gram matrix ``S S'``
alone.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from llm_experiments.policies.token_scores import completion_log_probs

GIB = 2**30
AT_ONCE = 2**20  # coordinates of all scores that are in float64 at once

Completions = Sequence[Sequence[int]]


@dataclass(frozen=True, eq=False)
class PoolScores:
    """What is known of the scores of N completions of one prompt.

    products (float64 ndarray, shape (N, N) or (N,)): Inner products of all pairs, or squared norms.
    log_probs (float64 ndarray, shape (N,)): ``log pi(y_h | x)`` under the tempered policy, end token included.
    """

    products: np.ndarray
    log_probs: np.ndarray


def gram_matrix(
    model: nn.Module,
    prompt_ids: Sequence[int],
    completions: Completions,
    *,
    temperature: float,
    parameters: str = "final_block",
    memory_gib: float = 4.0,
) -> PoolScores:
    """Gram matrix of the scores of pooled completions, exact.

    All scores are held at once, in as many coordinates as the memory allows; then the next coordinates follow, which
    takes all backward passes again.

    model: Its gradients, modes and flags stay as they are.
    completions: Tokens of each completion, its end token included where it has one. Equal ones are computed once.
    temperature: Of the policy ``softmax(logits / temperature)``.
    parameters: ``"all"``, ``"final_block"`` or a regular expression; see `chosen_parameters`.
    memory_gib: Of the scores, beyond the model and the gradient of a single completion.
    Raises ValueError if the parameters cannot be chosen, or the prompt or a completion is empty.
    """
    own, index = distinct(completions)
    chosen = chosen_parameters(model, parameters)
    dtype = torch.promote_types(chosen[0].dtype, torch.float32)
    width = max(1, int(memory_gib * GIB) // (dtype.itemsize * len(own)))
    total = torch.zeros(len(own), len(own), dtype=torch.float64, device=chosen[0].device)
    for part in _parts(chosen, width):
        scores = torch.empty(len(own), sum(len(span) for _, span in part), dtype=dtype, device=total.device)
        log_probs, of_part = [], [parameter for parameter, _ in part]
        for row, (log_prob, gradients) in enumerate(score_gradients(model, prompt_ids, own, of_part, temperature)):
            log_probs.append(log_prob)
            pieces = [each.flatten()[span.start : span.stop] for each, (_, span) in zip(gradients, part, strict=True)]
            scores[row] = torch.cat(pieces)
        for some in scores.split(AT_ONCE, dim=1):
            total += some.double() @ some.double().T
    return PoolScores(total.cpu().numpy()[np.ix_(index, index)], np.array(log_probs)[index])


def score_norms(
    model: nn.Module,
    prompt_ids: Sequence[int],
    completions: Completions,
    *,
    temperature: float,
    parameters: str = "final_block",
) -> PoolScores:
    """Squared score norms of completions: the diagonal of `gram_matrix`, in the memory of a single gradient."""
    own, index = distinct(completions)
    chosen = chosen_parameters(model, parameters)
    found = [
        (log_prob, sum(_precise(each).square().sum().item() for each in gradients))
        for log_prob, gradients in score_gradients(model, prompt_ids, own, chosen, temperature)
    ]
    log_probs, norms = np.array(found).T
    return PoolScores(norms[index], log_probs[index])


def score_gradients(
    model: nn.Module,
    prompt_ids: Sequence[int],
    completions: Completions,
    parameters: Sequence[nn.Parameter],
    temperature: float,
) -> Iterator[tuple[float, tuple[torch.Tensor, ...]]]:
    """Log-probability of each completion, and its gradient in each parameter.

    The model is in evaluation mode, and nothing but the parameters requires a gradient, until the last one is taken.
    """
    with _scoring(model, parameters):
        for completion in completions:
            with torch.enable_grad():
                score = completion_log_probs(model, prompt_ids, [completion], temperature=temperature)[0].sum()
            yield score.item(), torch.autograd.grad(score, parameters, allow_unused=True, materialize_grads=True)


def distinct(completions: Completions) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """Each completion once, and which of these every given one is."""
    rows = [tuple(map(int, each)) for each in completions]
    place = {row: number for number, row in enumerate(dict.fromkeys(rows))}
    return list(place), np.array([place[row] for row in rows], dtype=np.intp)


def chosen_parameters(model: nn.Module, parameters: str) -> list[nn.Parameter]:
    """The parameters that scores are taken with respect to, tied ones once.

    parameters: ``"all"``; ``"final_block"``, the last decoder layer and the output layer (which is the embedding matrix
        too where they are tied; the norm between them is left out, as in the paper's 7B diagnostic); or a regular
        expression that is searched for in the names of ``model.named_parameters()``. Tied parameters go by either name.
    Raises ValueError if no name matches, or the model is not built as Llama and Qwen2 are and ``final_block`` is asked
        for.
    """
    named = dict(model.named_parameters(remove_duplicate=False))
    if parameters == "all":
        return list(model.parameters())
    if parameters == "final_block":
        layers, head = getattr(getattr(model, "model", None), "layers", None), getattr(model, "lm_head", None)
        if not layers or head is None:
            raise ValueError(
                f"parameters = 'final_block': {type(model).__name__} has no model.layers and lm_head, as Llama and "
                "Qwen2 have; give a regular expression of parameter names."
            )
        return list(dict.fromkeys([*layers[-1].parameters(), *head.parameters()]))
    try:
        found = list(dict.fromkeys(each for name, each in named.items() if re.search(parameters, name)))
    except re.error as error:
        raise ValueError(f"parameters = {parameters!r} is not a regular expression: {error}.") from None
    if not found:
        names = "\n  ".join(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in named))
        raise ValueError(f"parameters = {parameters!r} matches none of the model's parameters:\n  {names}")
    return found


def _precise(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.to(torch.promote_types(gradient.dtype, torch.float32))


def _parts(parameters: Sequence[nn.Parameter], width: int) -> list[list[tuple[nn.Parameter, range]]]:
    """All coordinates in parts of at most ``width``: of each parameter that a part reaches into, which ones."""
    parts: list[list[tuple[nn.Parameter, range]]] = []
    room = 0
    for parameter in parameters:
        start = 0
        while start < parameter.numel():
            if not room:
                parts.append([])
                room = width
            span = range(start, min(start + room, parameter.numel()))
            parts[-1].append((parameter, span))
            start, room = span.stop, room - len(span)
    return parts


@contextmanager
def _scoring(model: nn.Module, parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Evaluation mode, gradients of these parameters alone, and no TF32; everything is put back at the end."""
    training = [(module, module.training) for module in model.modules()]
    requiring = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    precision = torch.get_float32_matmul_precision()
    try:
        model.eval()
        model.requires_grad_(False)
        for parameter in parameters:
            parameter.requires_grad_(True)
        torch.set_float32_matmul_precision("highest")  # inner products of large sums need the digits
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        for parameter, required in requiring:
            parameter.requires_grad_(required)
        for module, mode in training:
            module.training = mode
