"""Squared norms of rows' gradients in one module's parameters, from its input and the gradient of its output.

A row's gradient in a matrix is a sum over tokens of outer products, ``sum_t g_t x_t'`` with x_t what went into the
matrix and g_t the gradient of what came out. Its squared norm is ``sum_st (x_s . x_t)(g_s . g_t)`` (Li et al., 2022,
"Large language models can be strong differentially private learners"), which is less work where rows are short. Where
they are long, the gradient itself is formed, one row at a time. In Adam's units (`kaestat.integrations.adam_units`) it
is the same with x_t and g_t scaled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from kaestat.integrations.adam_units import Units, whole

ELEMENT = 30  # what passes over an element of a row's gradient cost, in operations of a matrix product; on a CPU
VOCABULARY = 8192  # tokens whose logits are made at once


@dataclass(frozen=True, eq=False)
class Call:
    """A module, its input (rows first), and the gradient of its output in float32, divided by the rows' factors.

    ``own`` are its parameters as the optimiser knows them: a sharded model holds others while it is called.
    """

    name: str
    module: Any
    own: Mapping[str, nn.Parameter]
    inputs: torch.Tensor
    gradient: torch.Tensor
    dtype: torch.dtype  # that the gradient came in

    @property
    def tokens(self) -> torch.Tensor:
        """The input, shape (B, T, in), or ids, shape (B, T)."""
        last = self.inputs.shape[-1:] if self.inputs.is_floating_point() else ()
        return self.inputs.reshape(len(self.inputs), -1, *last)

    @property
    def sent_back(self) -> torch.Tensor:
        """The gradient of the output, shape (B, T, out)."""
        return self.gradient.reshape(len(self.gradient), -1, self.gradient.shape[-1])

    def at(self, ids: torch.Tensor) -> torch.Tensor:
        """The gradient at the given outputs, shape (B, T, U), for ids of shape (B, U)."""
        return self.sent_back.gather(2, ids[:, None].expand(-1, self.sent_back.shape[1], -1))


@dataclass(frozen=True, eq=False)
class FusedHead:
    """An output layer that never holds all of its logits."""

    module: Any  # The layer; its logits are divided by the temperature and not changed otherwise
    hidden: torch.Tensor  # shape (B, T, d); input of the layer
    tokens: torch.Tensor  # shape (B, T); the tokens, and their log-probabilities
    log_probs: torch.Tensor  # shape (B, T); the tokens, and their log-probabilities
    temperature: float
    shown: torch.Tensor | None = None  # The layer's weight, where only its forward pass shows it whole (FSDP1)

    @cached_property
    def weight(self) -> torch.Tensor:
        """The layer's, whole: in a sharded model it may be called before its parameters are gathered."""
        return whole(self.module.weight if self.shown is None else self.shown).detach()

    @cached_property
    def bias(self) -> torch.Tensor | None:
        """The layer's, whole."""
        return None if self.module.bias is None else whole(self.module.bias).detach()

    def scaled_logits(self, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Logits divided by the temperature, float32, for the given rows of the layer."""
        logits = (self.hidden @ weight.to(self.hidden.dtype).transpose(-1, -2)).float()
        return (logits if bias is None else logits + bias.float()) / self.temperature

    def log_totals(self) -> torch.Tensor:
        """Logarithm of the normalising sum over the vocabulary, shape (B, T)."""
        own = (self.hidden * self.weight[self.tokens].to(self.hidden.dtype)).float().sum(-1)
        own = own if self.bias is None else own + self.bias[self.tokens].float()
        return own / self.temperature - self.log_probs.float()

    def at(self, counted: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Gradient of rows' scores at the logits of some tokens, shape (B, T, U), for ids of shape (B, U)."""
        bias = None if self.bias is None else self.bias[ids][:, None]
        probability = (self.scaled_logits(self.weight[ids], bias) - self.log_totals()[..., None]).exp()
        hit = self.tokens[..., None] == ids[:, None]
        return (hit.float() - probability) * (counted / self.temperature)[..., None]


def head_norms(head: FusedHead, counted: torch.Tensor, units: Units, own: Mapping[str, nn.Parameter]) -> torch.Tensor:
    """Squared norms of rows' scores, ``sum_t counted * log_probs``, in a fused output layer, (B,), float32.

    ``own`` are the layer's parameters as the optimiser knows them.
    """
    weight, bias = head.weight, head.bias
    rows, columns = units.matrix(own["weight"], "lm_head")
    met = counted.new_zeros(*counted.shape, counted.shape[1])
    norms = counted.new_zeros(len(counted))
    totals = head.log_totals()
    for start in range(0, len(weight), VOCABULARY):
        part = slice(start, start + VOCABULARY)
        sent_back = head.scaled_logits(weight[part], None if bias is None else bias[part])
        sent_back = sent_back.sub_(totals[..., None]).exp_().neg_()
        place = head.tokens - start
        here = (place >= 0) & (place < sent_back.shape[-1])
        sent_back.scatter_add_(2, place.where(here, 0)[..., None], here[..., None].float())
        sent_back *= (counted / head.temperature)[..., None]
        if bias is not None and own["bias"].requires_grad:
            scale = units.vector(own["bias"], "lm_head")
            norms += (sent_back.sum(1) * (scale if isinstance(scale, float) else scale[part])).square().sum(1)
        met += _gram(sent_back * (rows if isinstance(rows, float) else rows[part]))
    return norms + (_gram(head.hidden.float() * columns) * met).sum((1, 2))


def linear_norms(
    call: Call, factor: torch.Tensor | None, units: Sequence[Units]
) -> tuple[list[torch.Tensor], torch.Tensor | None]:
    """Squared norms in a linear layer's weight in each of the units, and the gradient of the weight.

    ``factor``, shape (B,), weighs the rows in that gradient; without it the gradient is not computed, and None.
    """
    x, g = call.tokens, call.sent_back
    scales = [each.matrix(call.own["weight"], call.name) for each in units]
    length, wide, high = x.shape[1], x.shape[2], g.shape[2]
    if 2 * length**2 * (wide + high) <= (ELEMENT + (2 * length if factor is None else 0)) * wide * high:
        own = x.float()
        norms = [(_gram(own * columns) * _gram(g * rows)).sum((1, 2)) for rows, columns in scales]
        if factor is None:
            return norms, None
        whole = (g * factor[:, None, None]).to(call.dtype)
        return norms, whole.flatten(0, 1).T @ x.to(call.dtype).flatten(0, 1)
    summed = None if factor is None else torch.zeros_like(call.module.weight, dtype=torch.float32)
    found = g.new_zeros(len(units), len(x))
    for row in range(len(x)):
        each = (g[row].to(call.dtype).T @ x[row].to(call.dtype)).float()
        if summed is not None and factor is not None:
            summed.addcmul_(each, factor[row])
        each.square_()
        for at, (rows, columns) in enumerate(scales):
            by_row = each.sum(1) if isinstance(columns, float) else each @ columns.square()
            found[at, row] = by_row.sum() if isinstance(rows, float) else rows.square() @ by_row
    return list(found), summed


def own_norms(call: Call, units: Units) -> torch.Tensor:
    """Squared norms in a module's own parameters, except a linear layer's weight, shape (B,), float32."""
    kind = module_kind(call.module)
    if kind is nn.Embedding:
        return _embedding_norms(call, units)
    if kind is None:
        return _direct(call, units)
    bias = call.module.bias
    if bias is None or not bias.requires_grad:
        return call.gradient.new_zeros(len(call.gradient))
    return (call.sent_back.sum(1) * units.vector(call.own["bias"], call.name)).square().sum(1)


def met_norms(call: Call, hidden: torch.Tensor, logits: torch.Tensor, units: Units) -> torch.Tensor:
    """Twice the inner products of a matrix's gradients as an embedding and as an output layer, shape (B,).

    ``hidden``, (B, S, d), is the input of the output layer, ``logits``, (B, S, T), the gradient at the embedding's
    tokens.
    """
    rows, columns = units.matrix(call.own["weight"], call.name)
    logits = logits if isinstance(rows, float) else logits * rows[call.tokens][:, None]
    return 2 * (logits * torch.bmm(hidden.float() * columns, _of_ids(call, units).transpose(1, 2))).sum((1, 2))


def _of_ids(call: Call, units: Units) -> torch.Tensor:
    """An embedding's gradients at its tokens, in units, shape (B, T, d)."""
    module, ids = call.module, call.tokens
    rows, columns = units.matrix(call.own["weight"], call.name)
    kept = torch.ones_like(ids, dtype=torch.float32) if isinstance(rows, float) else rows[ids]
    if module.padding_idx is not None:
        kept = kept * (ids != module.padding_idx)
    if _only_scales(module):
        kept = kept * module.embed_scale
    return call.sent_back * columns * kept[..., None]


def _embedding_norms(call: Call, units: Units) -> torch.Tensor:
    into, size = _of_ids(call, units), call.module.num_embeddings
    first = size * torch.arange(len(into), device=into.device)[:, None]
    places, of_token = torch.unique(call.tokens + first, return_inverse=True)
    sums = into.new_zeros(len(places), into.shape[-1]).index_add_(0, of_token.flatten(), into.flatten(0, 1))
    return into.new_zeros(len(into)).index_add_(0, places // size, sums.square().sum(1))


def _direct(call: Call, units: Units) -> torch.Tensor:
    """Of any other module, such as a norm: its own small gradients, row by row."""
    bare, trained = _WithoutHooks(call.module), [name for name, each in call.own.items() if each.requires_grad]
    own = {f"module.{name}": getattr(call.module, name).detach() for name in trained}

    def pull(inputs: torch.Tensor, back: torch.Tensor) -> dict[str, torch.Tensor]:
        out, vjp = torch.func.vjp(lambda given: torch.func.functional_call(bare, given, (inputs,)), own)
        return vjp(back.to(out.dtype))[0]

    hiding = {name: vars(call.module).pop(name) for name in trained if name in vars(call.module)}  # FSDP1's views
    try:
        found = torch.func.vmap(pull)(call.inputs, call.gradient)
    finally:
        vars(call.module).update(hiding)
    scaled = [found[f"module.{name}"].float() * units.vector(call.own[name], call.name) for name in trained]
    return torch.stack([each.flatten(1).square().sum(1) for each in scaled]).sum(0)


class _WithoutHooks(nn.Module):
    """Computes as a module does, without its hooks: FSDP2 gathers and frees parameters in them."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.module.forward(inputs)


def module_kind(module: nn.Module) -> type[nn.Module] | None:
    """Linear or Embedding if a module computes as they do, even as a subclass; a ValueError if it does more."""
    for kind in (nn.Linear, nn.Embedding):
        if isinstance(module, kind):
            if type(module).forward is not kind.forward and not _only_scales(module):
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


def _only_scales(module: nn.Module) -> bool:
    """Whether this is an embedding that multiplies by one number, as Gemma's does."""
    return isinstance(module, nn.Embedding) and isinstance(getattr(module, "embed_scale", None), float | torch.Tensor)


def _gram(each: torch.Tensor) -> torch.Tensor:
    return torch.bmm(each, each.transpose(1, 2))
