"""Adam's units of a gradient: each coordinate divided by the root of its mean square.

A matrix's mean squares are taken as an outer product of their row and column means (Shazeer and Stern, 2018,
"Adafactor"), so that a row's norm needs no gradient of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.tensor import DTensor, Partial

FLOOR = 1e-3  # of the mean of mean squares: coordinates that hardly move yet do not count without bounds

ADAFACTOR = "transformers.optimization", "Adafactor"  # module and name: this package does not import transformers

Squares = Mapping[nn.Parameter, torch.Tensor]


def adam_factors(square: torch.Tensor) -> torch.Tensor:
    """The factor of each coordinate of a parameter in Adam's units, in the shape of its mean squares, float32.

    A matrix is represented by its row and column means, a vector by each coordinate, with the floor, as in
    `gradient_norms`: gradients multiplied by these factors have exactly the norms computed there. ``square`` holds the
    mean squares of the parameter's gradient, in one or two dimensions.
    """
    square = square.float()
    if square.ndim != 2:
        return _inverse_root(square)
    rows, columns = _matrix_factors(square)
    return rows[:, None] * columns


def mean_squares(optimizer: torch.optim.Optimizer, model: nn.Module | None = None) -> Squares | None:
    """Squares of what each coordinate's gradient is divided by; None before a gradient.

    With Adam the divisor is the root of its mean square plus eps, and with Adafactor the root of its factored mean
    square. Its clipping, one number per matrix, is left out. Steps with all rewards equal have gradients of 0, or of
    rounding errors: while the mean squares of all parameters are below eps squared, Adam divides all coordinates by the
    same number. Norms in these units change by orders of magnitude at the start of training; `usable_weights` turns
    them into weights. A ValueError for other optimisers. FSDP1 alone needs the ``model`` that it wraps, with Adam and
    ``use_orig_params=True``.
    """
    bare = getattr(optimizer, "optimizer", optimizer)  # within accelerate's wrapper
    found: dict[nn.Parameter, _Kept | _Factored | _Partitioned] = {}
    if hasattr(bare, "optimizer"):
        found.update(_of_zero(bare))
    else:
        places = {} if model is None else _places(model)
        for group in bare.param_groups:
            check_optimizer(type(bare), group)
            for each in group["params"]:
                if getattr(each, "_fsdp_flattened", False):
                    found[each] = _of_part(each, bare.state.get(each), group, places)
                elif bare.state.get(each):
                    found[each] = _kept(bare.state[each], group)
    return _AdamSquares(found) if any(kept.moved() for kept in found.values()) else None


def check_optimizer(kind: type, settings: Mapping[str, Any]) -> None:
    """Raise a ValueError for optimisers whose units `mean_squares` does not know, by class and settings."""
    adafactor = any((each.__module__, each.__name__) == ADAFACTOR for each in kind.__mro__)
    if adafactor and settings.get("scale_parameter", True):
        raise ValueError("optimizer: Adafactor multiplies steps by parameters' sizes; set scale_parameter=False.")
    if not adafactor and not issubclass(kind, (torch.optim.Adam, torch.optim.AdamW)):
        raise ValueError(
            f"optimizer: {kind.__name__} does not keep a mean square of each coordinate as torch's Adam and AdamW and "
            "transformers' Adafactor do; take one of these, or norms in no optimiser's units (weights 'exact')."
        )


def _of_adam(own: Mapping[str, Any], group: Mapping[str, Any]) -> _Kept:
    name = "max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"
    return _Kept(own[name], 1 - group["betas"][1] ** float(own["step"]), group["eps"])


def _kept(own: Mapping[str, Any], group: Mapping[str, Any]) -> _Kept | _Factored:
    """What an optimiser keeps of a parameter's gradients."""
    if "betas" in group:
        return _of_adam(own, group)
    eps = (10 * group["eps"][0]) ** 0.5  # Adafactor adds the square to all squares, also to those of no gradient
    if "exp_avg_sq" in own:
        return _Kept(own["exp_avg_sq"], 1.0, eps)
    return _Factored(own["exp_avg_sq_row"], own["exp_avg_sq_col"], eps)


class _Kept(NamedTuple):
    """A parameter's running mean of squares, what it lacks of a mean at the beginning, and Adam's eps."""

    square: torch.Tensor
    share: float
    eps: float
    place: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.detach  # a process's part to its place, with FSDP1

    def moved(self) -> bool:
        """Whether Adam's eps does not drown it."""
        return float(whole(self.place(self.square.float() - self.share * self.eps**2).sum())) >= 0

    def units(self) -> torch.Tensor:
        """Float32; 0 for a parameter that has had no gradient at all."""
        square = self.square.float() / self.share
        moved = whole(self.place(square).sum()) > 0
        return self.place(square.sqrt_().add_(self.eps).square_() if moved else square)


def _of_part(
    part: nn.Parameter,
    own: Mapping[str, Any] | None,
    group: Mapping[str, Any],
    places: Mapping[nn.Parameter, Callable[[torch.Tensor], torch.Tensor]],
) -> _Kept:
    """What Adam keeps of the part of a parameter that this process has with FSDP1: perhaps nothing."""
    if part not in places or "betas" not in group:
        raise ValueError(
            "optimizer: FSDP1 flattens parameters; wrap the model with use_orig_params=True, take torch's Adam or "
            "AdamW, and give mean_squares the wrapped model."
        )
    kept = _of_adam(own, group) if own else _Kept(torch.zeros_like(part), 1.0, group["eps"])
    return kept._replace(place=places[part])


def _places(model: nn.Module) -> dict[nn.Parameter, Callable[[torch.Tensor], torch.Tensor]]:
    """For each parameter that FSDP1 flattens, what puts this process's part into a whole that is summed on demand."""
    found: dict[nn.Parameter, Callable[[torch.Tensor], torch.Tensor]] = {}
    for unit in FullyShardedDataParallel.fsdp_modules(model):
        if (flat := unit._flat_param) is None:
            continue
        mesh = DeviceMesh.from_group(unit.process_group, flat.device.type)
        for part, shape, held in zip(flat._params or (), flat._shapes, flat._shard_param_infos, strict=False):
            found[part] = partial(_placed, mesh, shape, held.intra_param_start_idx or 0)
            if unit.sharding_strategy is ShardingStrategy.NO_SHARD:  # torch's choice for one process
                found[part] = torch.Tensor.detach
    return found


def _placed(mesh: DeviceMesh, shape: torch.Size, start: int, part: torch.Tensor) -> torch.Tensor:
    whole = part.new_zeros(shape)
    whole.view(-1)[start : start + part.numel()] = part
    return DTensor.from_local(whole, mesh, [Partial()])


class _Partitioned(NamedTuple):
    """A parameter whose mean squares ZeRO spreads over processes; all gather them at the same time."""

    parameter: nn.Parameter
    name: str
    share: float
    eps: float

    def moved(self) -> bool:
        return self._gathered().moved()

    def units(self) -> torch.Tensor:
        return self._gathered().units()

    def _gathered(self) -> _Kept:
        from deepspeed.utils import safe_get_full_optimizer_state

        return _Kept(safe_get_full_optimizer_state(self.parameter, self.name), self.share, self.eps)


def _of_zero(zero: Any) -> dict[nn.Parameter, _Partitioned]:
    """What an optimiser of DeepSpeed's ZeRO keeps of each parameter. It flattens them and steps all of them at once."""
    from deepspeed.utils import lazy_init_hp_params_optimizer_state

    state = zero.optimizer.state
    settings = {(group["betas"], group["eps"], group["amsgrad"]) for group in zero.optimizer.param_groups}
    if len(settings) > 1:
        raise ValueError("optimizer: ZeRO needs the same betas, eps and amsgrad in all groups of parameters.")
    if not any(state.values()):
        return {}
    if hasattr(zero, "bit16_groups"):  # Stages 1 and 2 link all groups after the step of the first, when only it has a
        groups = zero.bit16_groups  # state (deepspeed 0.19.8)
        for parameters, flat in zip(groups, zero.single_partition_of_fp32_groups, strict=True):
            lazy_init_hp_params_optimizer_state(parameters, flat, state)
    else:
        groups = zero.fp16_groups
    ((betas, eps, amsgrad),) = settings
    share = 1 - betas[1] ** float(next(iter(state.values()))["step"])
    name = "max_exp_avg_sq" if amsgrad else "exp_avg_sq"
    return {each: _Partitioned(each, name, share, eps) for parameters in groups for each in parameters}


class _Factored(NamedTuple):
    """A matrix's running means of squares over columns and over rows."""

    rows: torch.Tensor
    columns: torch.Tensor
    eps: float

    def moved(self) -> bool:
        return float(whole(self.rows.float().mean())) >= self.eps**2

    def units(self) -> torch.Tensor:
        rows = self.rows.float() / self.rows.float().mean(-1, keepdim=True)
        return rows[..., None] * self.columns.float()[..., None, :] * self.moved()


class _AdamSquares(Mapping[nn.Parameter, torch.Tensor]):
    """Worked out for one parameter at a time: all together take as much memory as the model."""

    def __init__(self, kept: Mapping[nn.Parameter, _Kept | _Factored | _Partitioned]):
        self._kept = kept

    def __getitem__(self, parameter: nn.Parameter) -> torch.Tensor:
        return self._kept[parameter].units()

    def __iter__(self) -> Iterator[nn.Parameter]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


class Units:
    """The scaling of parameters' coordinates, from the `mean_squares` of one step; none without them."""

    def __init__(self, squares: Squares | None):
        self._squares = squares
        self._known: dict[nn.Parameter, tuple[torch.Tensor, ...]] = {}

    def matrix(self, parameter: nn.Parameter, name: str) -> tuple[torch.Tensor | float, ...]:
        """Factors of a matrix's rows and columns; errors name the module."""
        return (1.0, 1.0) if self._squares is None else self._factors(parameter, name, _matrix_factors)

    def vector(self, parameter: nn.Parameter, name: str) -> torch.Tensor | float:
        """Factors of any other parameter's coordinates."""
        return 1.0 if self._squares is None else self._factors(parameter, name, lambda own: (_inverse_root(own),))[0]

    def _factors(
        self, parameter: nn.Parameter, name: str, of: Callable[[torch.Tensor], tuple[torch.Tensor, ...]]
    ) -> tuple[torch.Tensor, ...]:
        if parameter not in self._known:
            if (square := (self._squares or {}).get(parameter)) is None:
                raise ValueError(
                    f"squares: there are none for a parameter of module {name}, of shape {parameter.shape}."
                )
            self._known[parameter] = of(square.float())
        return self._known[parameter]


def _matrix_factors(square: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Factors of a matrix's rows and columns, from its mean squares' row and column means."""
    rows, columns = whole(square.sum(1)) / square.shape[1], whole(square.sum(0)) / square.shape[0]
    return _inverse_root(rows), _inverse_root(columns) * rows.mean().sqrt()


def whole(each: torch.Tensor) -> torch.Tensor:
    """A tensor that may be sharded over processes (DTensor, ZeRO-3), with all its elements in each of them."""
    if hasattr(each, "ds_id") and not each.numel():
        with gathered([each]):
            return each.detach().clone()
    gather: Callable[[], torch.Tensor] | None = getattr(each, "full_tensor", None)
    return each if gather is None else gather()


def gathered(parameters: Sequence[torch.Tensor]) -> AbstractContextManager[Any]:
    """A context in which parameters that ZeRO-3 spreads over processes are whole in each of them."""
    if not parameters:
        return nullcontext()
    from deepspeed import zero

    return zero.GatheredParameters(parameters)


def _inverse_root(square: torch.Tensor) -> torch.Tensor:
    """``v^(-1/2)`` with the floor; 0 where all is 0."""
    square = whole(square)
    mean = square.mean()
    return (square + FLOOR * mean).rsqrt() if mean > 0 else torch.zeros_like(square)
