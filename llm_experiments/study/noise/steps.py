"""What single updates do to the accuracy on held-out prompts: what their mean does, and what their noise costs.

An update moves the parameters by ``rate * a``, with a the gradient in Adam's units. Over draws ``a = m + e`` a value
changes by ::

    V(t + a) - V(t)  =  V(t + m) - V(t)                         what the mean does
                      + (V(t + m + e) + V(t + m - e)) / 2 - V(t + m)    what noise costs, whatever its sign
                      + something odd in e, of mean 0

The pairs take the odd part, by far the largest, out of the second line.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from llm_experiments.training.stacked.model import Parameters, StackedDecoder

from .values import Thoughts

AT_ONCE = 8  # models


@dataclass(frozen=True, eq=False)
class Effects:
    """Changes of each problem's value by one update.

    Attributes
    ----------
    mean, cost : Tensor, shape (problems,)
    """

    mean: torch.Tensor
    cost: torch.Tensor


@torch.no_grad()
def effects(
    model: StackedDecoder, parameters: Parameters, thoughts: Thoughts, moves: torch.Tensor, pairs: int
) -> Effects:
    """What one update does to each problem's value.

    Parameters
    ----------
    model : StackedDecoder
    parameters : mapping
        A stack of one.
    thoughts : Thoughts
        Of the problems.
    moves : Tensor, shape (R, D)
        Draws of the update, learning rate included.
    pairs : int
        How many of the draws the cost is measured with.
    """
    mean = moves.mean(0, keepdim=True)
    noise = moves[:pairs] - mean

    def values(by: torch.Tensor) -> torch.Tensor:
        return torch.cat([thoughts.chances(model, moved(parameters, part)).mean(2) for part in by.split(AT_ONCE)])

    middle = values(mean)
    return Effects(
        (middle - values(torch.zeros_like(mean)))[0],
        ((values(mean + noise) + values(mean - noise)) / 2 - middle).mean(0),
    )


def moved(parameters: Parameters, moves: torch.Tensor) -> dict[str, torch.Tensor]:
    """A stack of one model, once for each of some moves in all its parameters, shape (moves, D)."""
    parts = moves.split([each[0].numel() for each in parameters.values()], 1)
    return {
        name: each.detach() + part.view(-1, *each.shape[1:])
        for (name, each), part in zip(parameters.items(), parts, strict=True)
    }
