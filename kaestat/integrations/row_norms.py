"""Squared norms of rows' gradients, (B,), in one module's parameters, from its input and its output's gradient.

``factors`` are those of Adam's units: of a matrix's rows and of its columns, or of another parameter's coordinates.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from kaestat.integrations.adam_units import joined

Factors = tuple[torch.Tensor, ...]


def linear_norms(x: torch.Tensor, g: torch.Tensor, factors: Factors) -> torch.Tensor:
    """In a linear layer's weight, for inputs of shape (B, T, in) and gradients of outputs of shape (B, T, out)."""
    rows, columns = factors
    pairs = zip(x, g, strict=True)
    squares = ((own.to(given.dtype).T @ given).float().square_() for given, own in pairs)
    return torch.stack([rows.square() @ (each @ columns.square()) for each in squares])


def embedding_norms(
    module: Any, ids: torch.Tensor, g: torch.Tensor, factors: Factors, met: tuple[torch.Tensor, torch.Tensor] | None
) -> torch.Tensor:
    """In an embedding, for ids (B, T) and gradients of outputs (B, T, d); ``met`` is of a tied output layer."""
    if module.padding_idx is not None:
        g = g * (ids != module.padding_idx)[..., None]
    if (scale := _scale(module)) is not None:
        g = g * scale
    size = module.num_embeddings
    first = size * torch.arange(len(ids), device=ids.device)[:, None]
    places, of_token = torch.unique(ids + first, return_inverse=True)
    sums = g.new_zeros(len(places), g.shape[-1]).index_add_(0, of_token.flatten(), g.flatten(0, 1))
    rows, columns = factors
    squares = (rows[places % size] * (sums * columns).norm(dim=1)).square()
    found = g.new_zeros(len(ids)).index_add_(0, places // size, squares)
    if met is not None:
        hidden, logits = met
        products = torch.bmm(hidden.float() * columns.square(), g.transpose(1, 2))
        found += 2 * (logits * rows[ids].square()[:, None] * products).sum((1, 2))
    return found


def small_norms(
    module: nn.Module, inputs: torch.Tensor, gradient: torch.Tensor, factors: Mapping[str, Factors]
) -> torch.Tensor:
    """In the parameters of any other module, such as a norm: from its own small gradients, row by row."""
    own = {name: getattr(module, name).detach() for name in factors}

    def pull(inputs: torch.Tensor, back: torch.Tensor) -> dict[str, torch.Tensor]:
        out, vjp = torch.func.vjp(lambda given: torch.func.functional_call(module, given, (inputs,)), own)
        return vjp(back.to(out.dtype))[0]

    found = torch.func.vmap(pull)(inputs, gradient)
    scaled = [found[name].float() * joined(factor) for name, factor in factors.items()]
    return torch.stack([each.flatten(1).square().sum(1) for each in scaled]).sum(0)


def module_kind(module: nn.Module) -> type[nn.Module] | None:
    """Linear or Embedding if a module computes as they do, even as a subclass; a ValueError if it does more."""
    for kind in (nn.Linear, nn.Embedding):
        if isinstance(module, kind):
            if type(module).forward is not kind.forward and _scale(module) is None:
                raise ValueError(f"a module of type {type(module).__name__} does more than {kind.__name__}; freeze it.")
            return kind
    return None


def tied_heads(modules: Mapping[str, nn.Module]) -> dict[nn.Module, nn.Module]:
    """The embedding that each output layer shares its matrix with; a ValueError if other modules share parameters."""
    by_parameter: dict[nn.Parameter, list[str]] = {}
    for name, module in modules.items():
        for parameter in module.parameters(recurse=False):
            if parameter.requires_grad:
                by_parameter.setdefault(parameter, []).append(name)
    found = {}
    for names in by_parameter.values():
        if len(names) == 1:
            continue
        uses = sorted((modules[name] for name in names), key=lambda module: module_kind(module) is nn.Linear)
        if [module_kind(module) for module in uses] != [nn.Embedding, nn.Linear]:
            raise ValueError(
                f"modules {', '.join(names)} share parameters otherwise than an embedding and an output layer do."
            )
        found[uses[1]] = uses[0]
    return found


def _scale(module: nn.Module) -> Any:
    """The number by which an embedding multiplies, as Gemma's does; None for others."""
    scale = getattr(module, "embed_scale", None)
    return scale if isinstance(module, nn.Embedding) and isinstance(scale, float | torch.Tensor) else None
