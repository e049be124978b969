"""Norms that verl's actor took in its updates, against one backward pass for each completion.

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
        log_probs = model(input_ids=ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        (log_probs[-len(counted) :] * counted).sum().backward()
        total = 0.0
        for name, parameter in model.named_parameters():
            gradient = parameter.grad.double()
            adams = weights == "adam" and update["squares"]
            total += float((gradient / roots(*update["squares"][name]) if adams else gradient).square().sum())
        found.append(total)
    return found


def recorded_norms(folder: Path, update: int) -> np.ndarray:
    """Norms of a batch's rows, in its order: each process has its part."""
    paths = sorted(folder.glob(f"update-{update:02}-*.pt"))
    return np.concatenate([torch.load(path)["norms"].numpy() for path in paths])


def largest_error(folder: Path, weights: str) -> tuple[float, float]:
    """Of all completions, relative, in the first update and in any."""
    worst, by_update = [], sorted(folder.glob("update-*.pt"))
    assert by_update, "no update was recorded"
    for path in by_update:
        update = torch.load(path)
        counts = np.array([float(counted.sum()) for counted in update["counted"]]) > 0
        expected = np.array(norms_of(update, folder / "model", weights))[counts]
        worst.append(float(np.abs(update["norms"].numpy()[counts] / expected - 1).max()))
        assert expected.std() > 0.01 * expected.mean(), "all completions have the same norm"
    first = [each for path, each in zip(by_update, worst, strict=True) if path.name.startswith("update-00")]
    return max(first), max(worst)
