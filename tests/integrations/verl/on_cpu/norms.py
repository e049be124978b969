"""Norms that verl's actor took, against one backward pass for each completion.

It sees the files that `recorder` wrote alone: whole parameters, Adam's mean squares, tokens, and norms.
"""

from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

FLOOR, BETA, EPS = 1e-3, 0.999, 1e-8  # of our units; of verl's AdamW


def roots(square, step):
    """What a gradient in Adam's units is divided by: Adam's divisor, of matrices by its rows and columns."""
    divisor = ((square.double() / (1 - BETA**step)).sqrt() + EPS).square()
    if divisor.ndim == 1:
        return (divisor + FLOOR * divisor.mean()).sqrt()
    row, column = (each + FLOOR * each.mean() for each in (divisor.mean(1), divisor.mean(0)))
    return (row[:, None] * column / divisor.mean()).sqrt()


def norms_of(update: dict, model_folder: Path, weights: str) -> list[float]:
    """The squared norm of each completion's score; NaN where it has no token in the loss."""
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32, attn_implementation="eager")
    model.load_state_dict(update["parameters"], strict=False)
    model.tie_weights()
    found = []
    for ids, counted in zip(update["rows"], update["counted"], strict=True):
        model.zero_grad()
        every = model(input_ids=ids[None]).logits[0, :-1].log_softmax(-1)
        log_probs = every.gather(1, ids[1:, None])[:, 0]
        if weights == "score_norm":
            of_tokens = 1 - 2 * log_probs.double().exp() + every.double().exp().square().sum(-1)
            found.append(float((of_tokens[-len(counted) :] * counted).sum()))
            continue
        (log_probs[-len(counted) :] * counted).sum().backward()
        total = 0.0
        for name, parameter in model.named_parameters():
            gradient = parameter.grad.double()
            adams = weights == "adam" and update["squares"]
            total += float((gradient / roots(*update["squares"][name]) if adams else gradient).square().sum())
        found.append(total)
    return found


def largest_errors(folder: Path, weights: str, recorded: list[np.ndarray]) -> list[float]:
    """Of the weights recorded at each step, relative to those of a loop; each process has its part of an update."""
    worst = []
    for number, found in enumerate(recorded):
        paths = sorted(folder.glob(f"update-{number:02}-*.pt"))
        parts = [norms_of(torch.load(path), folder / "model", weights) for path in paths]
        expected = np.concatenate([*parts, []])
        assert len(expected) == len(found), f"the norms of update {number} were not all written"
        expected = expected / expected.mean() if weights == "adam" else expected
        worst.append(float(np.abs(found / expected - 1).max()))
        spread = expected.std() / expected.mean()
        assert worst[-1] < 0.05 * spread, (
            f"weights of completions differ by {spread:.1e}, from a loop by {worst[-1]:.1e}"
        )
    return worst
