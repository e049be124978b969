"""Squared norms of rows' gradients in a torch model, from one forward and backward pass of their scores."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from kaestat.integrations.adam_units import Squares, Units
from kaestat.integrations.row_norms import embedding_norms, linear_norms, module_kind, small_norms, tied_heads


def gradient_norms(
    model: nn.Module, scores: Callable[[], torch.Tensor], squares: Squares | None = None
) -> torch.Tensor:
    """Squared norm of the gradient of each row's score in all trained parameters, shape (B,), float32.

    ``scores`` calls the model on B rows and returns a score of each, shape (B,), that depends on that row alone.
    ``squares``, as from `mean_squares`, make the norms those in Adam's units. Linear layers, embeddings and norms are
    called at most once in a forward pass, rows first, without reentrant gradient checkpointing. Raises a ValueError if
    a trained parameter belongs to an unsupported module, or has no mean square.
    """
    with torch.enable_grad(), norms_in_backward(model, Units(squares)) as norms:
        found = scores()
        norms.begin(found)
        torch.autograd.grad(found.sum(), norms.reached, allow_unused=True)
    return norms.norms


def usable_weights(norms: torch.Tensor, *, over_mean: bool = True) -> torch.Tensor:
    """The norms of a step's completions, (N,), ``over_mean`` in Adam's units; 1 for each with a warning if unusable."""
    mean = norms.mean()
    if mean.isfinite() and mean > 0:
        return norms / mean if over_mean else norms
    warnings.warn(
        f"weights: the mean of {len(norms)} completions' weights is {float(mean)}; each gets 1, as without weights.",
        stacklevel=2,
    )
    return torch.ones_like(norms)


class BackwardNorms:
    """Squared norms of the rows of the last forward and backward pass; `norms_in_backward` creates it.

    ``norms``, shape (B,), is complete after the backward pass. ``reached`` is a scalar to differentiate if no
    parameter's gradient is needed.
    """

    def __init__(self, modules: dict[str, nn.Module], units: Units):
        self._modules, self._units = modules, units
        self._embedding_of = tied_heads(modules)
        self._own = {module: dict(module.named_parameters(recurse=False)) for module in modules.values()}
        self.norms = torch.zeros(0)
        self.reached = torch.zeros((), requires_grad=True)
        self._ids: dict[nn.Module, torch.Tensor] = {}  # that went into an embedding
        # Input of an embedding's output layer, and the gradient of the logits of the embedding's tokens
        self._met: dict[nn.Module, tuple[torch.Tensor, torch.Tensor]] = {}
        self._seen: set[str] = set()
        self._quiet = False

    def begin(self, scores: torch.Tensor) -> None:
        """Start a backward pass from the sum of rows' scores, shape (B,), with norms of 0."""
        self.norms = torch.zeros(len(scores), device=scores.device)
        self._met.clear()
        self._seen.clear()

    def watched(self, name: str, module: nn.Module, given: tuple[Any, ...], options: Any, output: Any) -> Any:
        """A module's output, with a hook for its gradient: a forward hook."""
        if self._quiet or not torch.is_grad_enabled():
            return None
        if len(given) != 1 or options or not isinstance(output, torch.Tensor):
            raise ValueError(
                f"module {name} ({type(module).__name__}) has trained parameters and is not called with one tensor for "
                "another, so norms in them cannot be taken; freeze them."
            )
        if module_kind(module) is nn.Embedding:
            self._ids[module] = given[0]
        return _Observed.apply(output, given[0], self.reached, self, name)

    def came_back(self, name: str, inputs: torch.Tensor, gradient: torch.Tensor) -> None:
        """Add a module's part of the norms, when the gradient of its output is known."""
        rows = len(self.norms)
        if name in self._seen:
            raise ValueError(
                f"module {name} is called twice, not called once, so norms in it cannot be taken; freeze it."
            )
        if len(inputs) != rows or len(gradient) != rows:
            raise ValueError(
                f"module {name} is called with {len(inputs)} rows and not {rows}: completions meet in it, so that "
                "norms in its parameters cannot be taken; freeze them."
            )
        self._seen.add(name)
        self._quiet = True
        try:
            self.norms += self._of_module(self._modules[name], inputs, gradient).to(self.norms.device)
        finally:
            self._quiet = False

    def _of_module(self, module: Any, inputs: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        factors = {name: self._units.factors(own) for name, own in self._own[module].items() if own.requires_grad}
        kind = module_kind(module)
        if kind is None:
            return small_norms(module, inputs, gradient.float(), factors)
        g = gradient.reshape(len(gradient), -1, gradient.shape[-1]).float()
        if kind is nn.Embedding:
            ids = inputs.reshape(len(inputs), -1)
            return embedding_norms(module, ids, g, factors["weight"], self._met.pop(module, None))
        found = g.new_zeros(len(g))
        if "weight" in factors:
            x = inputs.reshape(len(inputs), -1, inputs.shape[-1]).to(gradient.dtype)
            found += linear_norms(x, g, factors["weight"])
            embedding = self._embedding_of.get(module)
            if embedding in self._ids:
                ids = self._ids[embedding].flatten(1)[:, None].expand(-1, g.shape[1], -1)
                self._met[embedding] = x, g.gather(2, ids)
        if "bias" in factors:
            (scale,) = factors["bias"]
            found += (g.sum(1) * scale).square().sum(1)
        return found


@contextmanager
def norms_in_backward(model: nn.Module, units: Units) -> Iterator[BackwardNorms]:
    """A context that collects norms of rows in forward and backward passes through a model, one after another."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()  # after sampling some still hold other parameters than the optimiser
    modules = {
        name: module
        for name, module in model.named_modules()
        if any(parameter.requires_grad for parameter in module.parameters(recurse=False))
    }
    found = BackwardNorms(modules, units)
    with ExitStack() as hooks:
        for name, module in modules.items():
            hooks.callback(module.register_forward_hook(partial(found.watched, name), with_kwargs=True).remove)
        yield found


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
