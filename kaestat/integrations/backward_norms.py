"""Squared norms of rows' gradients, collected during a backward pass of a torch model.

A policy's loss is a sum over rows, and what it sends back through row i is f_i times the gradient of the row's score:
f_i is its advantage over a normaliser. So the pass that trains has all that the norms need, gradient checkpointing
included: rows do not meet in it.

**A row whose advantage is 0** sends nothing back. Whether it is 0 depends on the reward, so such rows cannot be left
out. `not_zero` gives them an advantage of `TINY`. What they add to the summed gradient is far below its rounding
errors, so the update stays what it was; but each row has its own digits on the way back, and its norm has them all.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from kaestat.integrations.adam_units import Units
from kaestat.integrations.row_norms import (
    Call,
    FusedHead,
    head_norms,
    linear_norms,
    met_norms,
    module_kind,
    own_norms,
    tied_heads,
)

TINY = 2.0**-40  # a power of two: it costs no digits
SAME = 1e-2  # of a row's factor: by so much tokens may differ in what they are multiplied by


def not_zero(advantages: torch.Tensor) -> torch.Tensor:
    """Advantages, of a type with the range of float32; those below `TINY` in size become `TINY` with the same sign."""
    return torch.where(advantages.abs() >= TINY, advantages, torch.where(advantages < 0, -TINY, TINY))


class BackwardNorms:
    """Squared norms of the rows of a forward and backward pass, the last one; `norms_in_backward` creates it.

    Attributes
    ----------
    norms : list of Tensor, shape (B,), float32
        Norms in each of the units, complete after the backward pass; empty before, and without `begin`.
    reached : Tensor
        A scalar to differentiate if no parameter's gradient is needed, so that the backward pass goes through all
        modules.
    """

    def __init__(self, modules: dict[str, nn.Module], units: Sequence[Units], *, total: bool):
        self._modules, self._units, self._total = modules, units, total
        self._embedding_of = tied_heads(modules)
        self._own = {module: dict(module.named_parameters(recurse=False)) for module in modules.values()}
        self.norms: list[torch.Tensor] = []
        self.reached = torch.zeros((), requires_grad=True)
        self._factor: torch.Tensor | None = None  # unknown before the first `begin`
        self._lengths: Sequence[int] | None = None
        self._ids: dict[nn.Module, torch.Tensor] = {}
        self._met: dict[nn.Module, tuple[torch.Tensor, torch.Tensor]] = {}
        self._seen: set[str] = set()
        self._quiet = False

    def begin(self, factor: torch.Tensor, known: torch.Tensor | None = None) -> None:
        """Set the factors of the rows, shape (B,) and not 0, before the backward pass reaches the model.

        The norms of a row that is not ``known``, shape (B,), cannot be computed: they are NaN.
        """
        self._factor = factor = factor.float()
        self._met.clear()
        self._seen.clear()
        start = torch.zeros_like(factor)
        self.norms = [start if known is None else start.masked_fill(~known, torch.nan) for _ in self._units]

    def of_scores(
        self,
        log_probs: torch.Tensor,
        counted: torch.Tensor,
        head: FusedHead | None = None,
        *,
        rows: Callable[[torch.Tensor], torch.Tensor] = lambda each: each,
        lengths: Sequence[int] | None = None,
    ) -> None:
        """Find the rows' factors in the backward pass itself, from the loss's gradient at the tokens.

        A row's score is the sum of ``counted * log_probs``, both (B, T): 1 for a token in the loss, or its importance
        ratio. Rows whose tokens have different factors get NaN: their gradient is not the gradient of their score.
        ``head`` is the output layer, if the log-probabilities come from it without a call of its module. ``rows``
        brings log-probabilities of another shape to (B, T). If modules are called with all rows end to end in a single
        one, perhaps with padding behind them, ``lengths`` are their tokens.
        """
        size, self._lengths = counted.float(), lengths

        def begin(sent_back: torch.Tensor) -> None:
            given, total = rows(sent_back).float(), size.square().sum(1)
            factor = (given * size).sum(1) / total.where(total > 0, 1.0)
            off = (given - factor[:, None] * size).abs().amax(1) > SAME * factor.abs() * size.amax(1)
            known = (total == 0) | (~off & (factor != 0))
            self.begin(factor.where(factor != 0, 1.0), known)
            if head is not None and head.module.weight.requires_grad:
                self._add([head_norms(head, size, units, self._own[head.module]) for units in self._units])
                self._meet(head.module, head.hidden, partial(head.at, size))

        log_probs.register_hook(begin)

    def forward(self, name: str, original: Callable[..., Any], *given: Any, **options: Any) -> Any:
        """The output of a module, with a hook for its gradient."""
        module = self._modules[name]
        if self._quiet or not torch.is_grad_enabled():
            return original(*given, **options)
        if len(given) != 1 or options:
            raise self._not_understood(name)
        if module_kind(module) is nn.Linear and module.weight.requires_grad:
            return _Linear.apply(given[0], module.weight, module.bias, self.reached, self, name)
        if module_kind(module) is nn.Embedding:
            self._ids[module] = given[0]
        output = original(*given)
        if not isinstance(output, torch.Tensor):
            raise self._not_understood(name)
        return _Observed.apply(output, given[0], self.reached, self, name)

    def _not_understood(self, name: str) -> ValueError:
        return ValueError(
            f"module {name} ({type(self._modules[name]).__name__}) has trained parameters and is not called with one "
            "tensor for another, so norms in them cannot be taken; freeze them."
        )

    def came_back(self, name: str, inputs: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor | None:
        """The summed gradient of a linear layer's weight; adds the module's part of the norms."""
        module, factor = self._modules[name], self._factor
        linear = module_kind(module) is nn.Linear and module.weight.requires_grad
        if factor is None:  # the loss does not come from `of_scores`
            return gradient.flatten(0, -2).T @ inputs.flatten(0, -2).to(gradient.dtype) if linear else None
        if name in self._seen:
            raise ValueError(
                f"module {name} is called twice, not called once, so norms in it cannot be taken; freeze it."
            )
        self._seen.add(name)
        inputs, gradient = self._rows(inputs), self._rows(gradient)
        if len(inputs) != len(factor) or len(gradient) != len(factor):
            raise ValueError(
                f"module {name} is called with {len(inputs)} rows and not {len(factor)}: completions meet "
                "in it, so that norms in its parameters cannot be taken; freeze them."
            )
        factor = factor.to(gradient.device)
        over = gradient.float() / factor.reshape(-1, *[1] * (gradient.ndim - 1))
        own, summed = Call(name, module, self._own[module], inputs, over, gradient.dtype), None
        if linear:
            found, summed = linear_norms(own, factor if self._total else None, self._units)
            self._add(found)
            self._meet(module, own.tokens, own.at)
        self._quiet = True
        try:
            self._add([own_norms(own, units) for units in self._units])
        finally:
            self._quiet = False
        if (met := self._met.pop(module, None)) is not None:
            self._add([met_norms(own, *met, units) for units in self._units])
        return summed

    def _rows(self, each: torch.Tensor) -> torch.Tensor:
        """Rows one above the other, padded with zeros, if they came end to end."""
        if self._lengths is None:
            return each
        if len(each) != 1 or each.shape[1] < sum(self._lengths):
            return each  # refused where it comes back
        return pad_sequence(each[0, : sum(self._lengths)].split(list(self._lengths)), batch_first=True)

    def _meet(self, head: nn.Module, hidden: torch.Tensor, at: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Keep what an output layer's embedding will need; ``at`` gives the gradient of the logits of tokens."""
        embedding = self._embedding_of.get(head)
        if embedding in self._ids:
            self._met[embedding] = hidden.detach(), at(self._rows(self._ids[embedding]).reshape(len(hidden), -1))

    def _add(self, found: Sequence[torch.Tensor]) -> None:
        self.norms = [each + new.to(each.device) for each, new in zip(self.norms, found, strict=True)]


@contextmanager
def norms_in_backward(model: nn.Module, units: Sequence[Units], *, total: bool = True) -> Iterator[BackwardNorms]:
    """A context for forward and backward passes through a model, one after another, which collects norms of rows.

    They are in each of the units. Linear layers, embeddings and norms are called once, with one tensor, rows first.
    With ``total`` the backward pass also computes the parameters' gradients, as in training. Modules that share
    parameters otherwise than an embedding and an output layer do, and trained parameters of unsupported modules, raise
    a ValueError.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()  # after sampling some still hold other parameters than the optimiser
    modules = {
        name: module
        for name, module in model.named_modules()
        if any(parameter.requires_grad for parameter in module.parameters(recurse=False))
    }
    found = BackwardNorms(modules, units, total=total)
    before = {name: vars(module).get("forward") for name, module in modules.items()}
    for name, module in modules.items():
        module.forward = partial(found.forward, name, module.forward)
    try:
        yield found
    finally:
        for name, module in modules.items():
            del module.forward
            if before[name] is not None:
                module.forward = before[name]


class _Linear(torch.autograd.Function):
    """A linear layer whose backward pass forms rows' gradients one by one, if at all."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, reached: Any, norms: BackwardNorms, name: str) -> Any:
        ctx.save_for_backward(x, weight)
        ctx.norms, ctx.name = norms, name
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, weight = ctx.saved_tensors
        summed = ctx.norms.came_back(ctx.name, x, gradient)
        back = (gradient @ weight.to(gradient.dtype)).to(x.dtype) if ctx.needs_input_grad[0] else None
        bias = gradient.flatten(0, -2).sum(0).to(weight.dtype) if ctx.needs_input_grad[2] else None
        return back, None if summed is None else summed.to(weight.dtype), bias, None, None, None


class _Observed(torch.autograd.Function):
    """What it is given, unchanged; what went into the module that made it is kept as autograd keeps it."""

    @staticmethod
    def forward(ctx: Any, output: Any, x: Any, reached: Any, norms: BackwardNorms, name: str) -> Any:
        ctx.save_for_backward(x)
        ctx.norms, ctx.name = norms, name
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ctx.norms.came_back(ctx.name, ctx.saved_tensors[0], gradient)
        return gradient, None, None, None, None
