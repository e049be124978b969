"""Squared norms of rows' gradients in one module's parameters, from its input and the gradient of its output.

A row's gradient in a matrix is a sum over tokens of outer products, ``sum_t g_t x_t'`` with x_t what went into the
matrix and g_t the gradient of what came out. Its squared norm is ``sum_st (x_s . x_t)(g_s . g_t)`` (Li et al., 2022,
"Large language models can be strong differentially private learners"), which is less work where rows are short. Where
they are long, the gradient itself is formed, one row at a time. In Adam's units (`kaestat.integrations.adam_units`) it
is the same with x_t and g_t scaled.

Every function returns a norm for each row, shape (B,), float32, in each of the units. ``factors`` are a parameter's in
each of the units: of a matrix's rows and of its columns, or of any other parameter's coordinates.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from kaestat.integrations.adam_units import joined

ELEMENT = 30  # what passes over an element of a row's gradient cost, in operations of a matrix product; on a CPU

Factors = Sequence[tuple[torch.Tensor, ...]]


def linear_norms(x: torch.Tensor, g: torch.Tensor, factors: Factors) -> list[torch.Tensor]:
    """In a linear layer's weight, for inputs of shape (B, T, in) and gradients of outputs of shape (B, T, out)."""
    length, wide, high = x.shape[1], x.shape[2], g.shape[2]
    if 2 * length**2 * (wide + high) <= (ELEMENT + 2 * length) * wide * high:
        return [(_gram(x.float() * columns) * _gram(g * rows)).sum((1, 2)) for rows, columns in factors]
    found = g.new_zeros(len(factors), len(x))
    for row in range(len(x)):
        squares = (g[row].to(x.dtype).T @ x[row]).float().square_()
        for at, (rows, columns) in enumerate(factors):
            found[at, row] = rows.square() @ (squares @ columns.square())
    return list(found)


def embedding_norms(
    module: Any, ids: torch.Tensor, g: torch.Tensor, factors: Factors, met: tuple[torch.Tensor, torch.Tensor] | None
) -> list[torch.Tensor]:
    """In an embedding, for ids of shape (B, T) and gradients of outputs of shape (B, T, d).

    If an output layer has the same matrix, ``met`` are its input, shape (B, S, d), and the gradient of its logits at
    the embedding's tokens, shape (B, S, T): twice the inner product of both gradients is added.
    """
    if module.padding_idx is not None:
        g = g * (ids != module.padding_idx)[..., None]
    if (scale := _scale(module)) is not None:
        g = g * scale
    size = module.num_embeddings
    first = size * torch.arange(len(ids), device=ids.device)[:, None]
    places, of_token = torch.unique(ids + first, return_inverse=True)
    sums = g.new_zeros(len(places), g.shape[-1]).index_add_(0, of_token.flatten(), g.flatten(0, 1))
    found = []
    for rows, columns in factors:
        squares = (rows[places % size] * (sums * columns).norm(dim=1)).square()
        found.append(g.new_zeros(len(ids)).index_add_(0, places // size, squares))
        if met is not None:
            hidden, logits = met
            products = torch.bmm(hidden.float() * columns.square(), g.transpose(1, 2))
            found[-1] += 2 * (logits * rows[ids].square()[:, None] * products).sum((1, 2))
    return found


def small_norms(
    module: nn.Module, inputs: torch.Tensor, gradient: torch.Tensor, factors: Mapping[str, Factors]
) -> list[torch.Tensor]:
    """In the parameters of any other module, such as a norm: from its own small gradients, row by row."""
    own = {name: getattr(module, name).detach() for name in factors}

    def pull(inputs: torch.Tensor, back: torch.Tensor) -> dict[str, torch.Tensor]:
        out, vjp = torch.func.vjp(lambda given: torch.func.functional_call(module, given, (inputs,)), own)
        return vjp(back.to(out.dtype))[0]

    found = torch.func.vmap(pull)(inputs, gradient)
    norms = []
    for each in zip(*factors.values(), strict=True):
        scaled = [found[name].float() * joined(own) for name, own in zip(factors, each, strict=True)]
        norms.append(torch.stack([own.flatten(1).square().sum(1) for own in scaled]).sum(0))
    return norms


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


def _gram(each: torch.Tensor) -> torch.Tensor:
    return torch.bmm(each, each.transpose(1, 2))
