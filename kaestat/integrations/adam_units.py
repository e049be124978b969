"""Adam's units of a gradient: each coordinate divided by the root of its mean square.

A matrix's mean squares are the outer product of their row and column means (Adafactor: Shazeer and Stern, 2018).
"""

from collections import UserDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

FLOOR = 1e-3  # of the mean of mean squares: coordinates that hardly move yet do not count without bounds

Squares = Mapping[nn.Parameter, torch.Tensor]


def adam_factors(square: torch.Tensor) -> torch.Tensor:
    """The factor of each coordinate of a parameter with mean squares ``square`` in Adam's units, float32."""
    return joined(_factors(square.float()))


def mean_squares(optimizer: torch.optim.Optimizer) -> Squares | None:
    """Squares of what Adam divides each coordinate's gradient by; None before a gradient.

    While the mean squares of all parameters are below eps squared, as of rounding errors, there is no gradient yet. A
    ValueError for other optimisers than torch's Adam and AdamW.
    """
    bare = getattr(optimizer, "optimizer", optimizer)  # within accelerate's wrapper
    check_optimizer(type(bare))
    kept: dict[nn.Parameter, _Kept] = {}
    for group in bare.param_groups:
        name = "max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"
        for each in group["params"]:
            if own := bare.state.get(each):
                kept[each] = _Kept(own[name], 1 - group["betas"][1] ** float(own["step"]), group["eps"])
    return _AdamSquares(kept) if any(each.moved() for each in kept.values()) else None


def check_optimizer(kind: type) -> None:
    """Raise a ValueError for classes of optimisers whose units `mean_squares` does not know."""
    if not issubclass(kind, (torch.optim.Adam, torch.optim.AdamW)):
        raise ValueError(
            f"optimizer: {kind.__name__} does not keep a mean square of each coordinate as torch's Adam and AdamW do; "
            "take one of these, or norms in no optimiser's units (weights 'exact')."
        )


class _Kept(NamedTuple):
    """A parameter's running mean of squares, what it lacks of a mean at the beginning, and Adam's eps."""

    square: torch.Tensor
    share: float
    eps: float

    def moved(self) -> bool:
        """Whether Adam's eps does not drown it."""
        return bool(whole((self.square.float() - self.share * self.eps**2).sum()) >= 0)

    def units(self) -> torch.Tensor:
        """Float32; 0 for a parameter that has had no gradient at all."""
        square = self.square.float() / self.share
        return square.sqrt_().add_(self.eps).square_() if whole(square.sum()) > 0 else square


class _AdamSquares(UserDict[nn.Parameter, Any]):
    """Worked out for one parameter at a time: all together take as much memory as the model."""

    def __getitem__(self, parameter: nn.Parameter) -> torch.Tensor:
        return self.data[parameter].units()


class Units:
    """The scaling of parameters' coordinates, from the `mean_squares` of one step; none without them."""

    def __init__(self, squares: Squares | None):
        self._squares = squares

    def factors(self, parameter: nn.Parameter) -> tuple[torch.Tensor, ...]:
        """Factors of a matrix's rows and of its columns, or of any other parameter's coordinates."""
        if self._squares is None:
            shape = parameter.shape if parameter.ndim == 2 else ((),)
            return tuple(torch.ones(size, device=parameter.device) for size in shape)
        if parameter not in self._squares:
            raise ValueError(f"squares: there are none for a parameter of shape {tuple(parameter.shape)}.")
        return _factors(self._squares[parameter].float())


def whole(each: torch.Tensor) -> torch.Tensor:
    """A tensor that FSDP2 may spread over processes, with all its elements in each of them."""
    gather: Callable[[], torch.Tensor] | None = getattr(each, "full_tensor", None)
    return each if gather is None else gather()


def joined(factors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The factor of each coordinate of a parameter."""
    return factors[0] if len(factors) == 1 else factors[0][:, None] * factors[1]


def _factors(square: torch.Tensor) -> tuple[torch.Tensor, ...]:
    if square.ndim != 2:
        return (_inverse_root(square),)
    rows, columns = whole(square.sum(1)) / square.shape[1], whole(square.sum(0)) / square.shape[0]
    return _inverse_root(rows), _inverse_root(columns) * rows.mean().sqrt()


def _inverse_root(square: torch.Tensor) -> torch.Tensor:
    """``v^(-1/2)`` with the floor; 0 where all is 0."""
    square = whole(square)
    mean = square.mean()
    return (square + FLOOR * mean).rsqrt() if mean > 0 else torch.zeros_like(square)
