"""Adam's mean squares at one policy: the mean square of each coordinate over batches of policy gradients.

Batch b takes completion b of every prompt, and each prompt's other completions give its baseline: the gradient is
``mean_x (R_xb - mean_{c != b} R_xc) s_xb``. At a policy that stands still this is what Adam's second moment comes to. A
common factor of all parameters does not matter for what is made of it.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from llm_experiments.gradient.architecture import Decoder
from llm_experiments.gradient.reverse_pass import requiring, undisturbed


def mean_squares(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[Sequence[int]]],
    rewards: np.ndarray,
    *,
    temperature: float,
    batch_tokens: int,
    done: Callable[[], None] = lambda: None,
) -> dict[nn.Parameter, torch.Tensor]:
    """Mean square of each trained coordinate's gradient over batches.

    model: Built as Llama or Qwen2 is.
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
    squares = {parameter: torch.zeros_like(parameter, dtype=torch.float32) for parameter in trained}
    decoder = Decoder.of(model)
    with undisturbed(model), requiring(trained):
        for batch in range(h):
            rows = [row for row in range(n) if advantages[row, batch]]
            texts = [(prompts[row], completions[row][batch]) for row in rows]
            gradient = _gradient(decoder, trained, texts, advantages[rows, batch] / n, temperature, batch_tokens)
            for parameter, each in gradient.items():
                squares[parameter] += each.square_() / h
            done()
    return squares


def _gradient(
    decoder: Decoder,
    trained: Sequence[nn.Parameter],
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    weights: np.ndarray,
    temperature: float,
    batch_tokens: int,
) -> dict[nn.Parameter, torch.Tensor]:
    """``sum_b weights_b grad log pi(completion_b | prompt_b)``, float32."""
    sums: dict[nn.Parameter, torch.Tensor] = {}
    order = sorted(range(len(texts)), key=lambda row: sum(map(len, texts[row])))
    part: list[int] = []
    for place, row in enumerate(order):
        part.append(row)
        ahead = order[place + 1] if place + 1 < len(order) else None
        if ahead is None or (len(part) + 1) * sum(map(len, texts[ahead])) > batch_tokens:
            scores = text_scores(decoder, [texts[each] for each in part], temperature)
            loss = torch.as_tensor(weights[part], dtype=scores.dtype, device=scores.device) @ scores
            found = torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True)
            for parameter, each in zip(trained, found, strict=True):
                sums[parameter] = sums[parameter].add_(each) if parameter in sums else each.float()
            part = []
    return sums


def text_scores(
    decoder: Decoder, texts: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float
) -> torch.Tensor:
    """Log-probability of each completion after its own prompt, shape (B,); prompts may differ in length.

    Rows are padded on the right, which changes nothing before it, and logits are taken where they are asked for alone.
    """
    rows = [[*prompt, *completion[:-1]] for prompt, completion in texts]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=decoder.device)
    owner = np.concatenate([np.full(len(completion), row) for row, (_, completion) in enumerate(texts)])
    starts = [len(prompt) - 1 for prompt, _ in texts]
    places = [np.arange(len(texts[row][1])) + start + row * width for row, start in enumerate(starts)]
    targets = torch.tensor([token for _, completion in texts for token in completion], device=decoder.device)
    hidden = decoder.body(input_ids=ids, use_cache=False).last_hidden_state.flatten(0, 1)
    logits = decoder.head(hidden[torch.from_numpy(np.concatenate(places)).to(decoder.device)]).float() / temperature
    own = logits.gather(-1, targets[:, None])[:, 0] - logits.logsumexp(-1)
    return torch.zeros(len(texts), device=own.device).index_add(0, torch.from_numpy(owner).to(own.device), own)
