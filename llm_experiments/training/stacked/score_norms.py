"""Squared norms of whole completions' scores: what a completion's reward weighs in the gradient's noise.

A completion's gradient in a matrix is a sum over tokens of outer products, ``sum_t g_t x_t'`` with x_t what went into
the matrix and g_t the gradient of what came out. Its squared norm is ``sum_st (x_s . x_t)(g_s . g_t)``: the gradient
itself is never formed, and all completions take one backward pass together, as they do not meet in it.

Adam divides each coordinate by the root of its mean square v. Where v is taken as an outer product of its row and
column means (Shazeer and Stern, 2018, "Adafactor"), the norm in these units is the same sum with x_t and g_t scaled.
"""

from collections.abc import Mapping, Sequence

import torch

from .model import Tap

FLOOR = 1e-3  # of the mean of mean squares: coordinates that hardly move yet do not count without bounds


def tapped_norms(
    scores: torch.Tensor, taps: Sequence[Tap], squares: Mapping[str, torch.Tensor] | None = None
) -> torch.Tensor:
    """Squared norm of the gradient of each row's score in all parameters, shape (runs, rows).

    scores (Tensor, shape (runs, rows)): Of a graph that is kept. Each is of its own row's tokens alone.
    taps: Of every parameter of the graph.
    squares: Mean square of each coordinate's gradient, runs first, for the norm in Adam's units.
    """
    runs, rows = scores.shape
    gradients = torch.autograd.grad(scores.sum(), [tap.outputs for tap in taps], retain_graph=True)
    found = scores.new_zeros(runs * rows)
    tied = {}
    for tap, gradient in zip(taps, gradients, strict=True):
        x, g, bias = tap.inputs.detach(), gradient, gradient
        if squares is not None:
            x, g, bias = _in_units(tap, x, g, squares)
        x, g, bias = (each.reshape(runs * rows, -1, *each.shape[2:]) for each in (x, g, bias))
        if tap.kind == "scale":
            found += (x * g).sum(1).square().sum(1)
        elif tap.kind in ("embedding", "logits"):
            tied[tap.kind] = x, g
        else:
            found += (_gram(x, x) * _gram(g, g)).sum((1, 2))
        if tap.kind == "biased":
            found += bias.sum(1).square().sum(1)
    (read, into), (last, out) = tied["embedding"], tied["logits"]
    same = read[:, :, None] == read[:, None]
    # One matrix embeds tokens and gives the logits: its gradient is the sum of both uses.
    met = out.gather(2, read[:, None].expand(-1, out.shape[1], -1))  # the logit of token t's own, at place s
    found += (same * _gram(into, into)).sum((1, 2)) + (_gram(last, last) * _gram(out, out)).sum((1, 2))
    found += 2 * (met * _gram(last, into)).sum((1, 2))
    return found.view(runs, rows)


def _in_units(
    tap: Tap, x: torch.Tensor, g: torch.Tensor, squares: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What went in, the gradient of what came out, and the latter for the bias, as Adam scales the parameters."""
    if tap.kind == "scale":
        return x, g * _inverse_root(squares[tap.name])[:, None], g
    square = squares[tap.name]
    row, column = _inverse_root(square.mean(2)), _inverse_root(square.mean(1))
    level = square.mean((1, 2)).sqrt()[:, None]
    column = column * torch.where(level > 0, level, 1.0)
    if tap.kind == "embedding":
        return x, g * row.gather(1, x)[..., None] * column[:, None], g
    bias = g
    if tap.kind == "biased":
        bias = g * _inverse_root(squares[tap.name.replace(".weight", ".bias")])[:, None]
    return x * column[:, None], g * row[:, None], bias


def _inverse_root(square: torch.Tensor) -> torch.Tensor:
    """Shape (runs, D); 1 where a run's coordinates have not moved yet, so that its norms are plain until they do."""
    mean = square.mean(1, keepdim=True)
    return torch.where(mean > 0, square + FLOOR * mean, 1.0).rsqrt()


def _gram(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Products of all places of each row, shape (rows, S, T)."""
    return torch.bmm(left, right.transpose(1, 2))
