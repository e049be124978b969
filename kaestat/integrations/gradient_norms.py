"""Squared norms of single completions' gradients in a torch model, without forming any of them.

A completion's gradient in a matrix is a sum over tokens of outer products, ``sum_t g_t x_t'`` with x_t what went into
the matrix and g_t the gradient of what came out. Its squared norm is ``sum_st (x_s . x_t)(g_s . g_t)`` (Li et al.,
2022, "Large language models can be strong differentially private learners"): one backward pass serves all completions,
which do not meet in it.

Adam divides each coordinate by the root of its mean square v. Where v is taken as an outer product of its row and
column means (Shazeer and Stern, 2018, "Adafactor"), the norm in these units is the same sum with x_t and g_t scaled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

FLOOR = 1e-3  # of the mean of mean squares: coordinates that hardly move yet do not count without bounds

Squares = Mapping[nn.Parameter, torch.Tensor]


@dataclass(frozen=True)
class _Call:
    """What went into a module, rows first, and what came out."""

    name: str
    module: nn.Module
    inputs: torch.Tensor
    output: torch.Tensor


_Use = tuple[_Call, torch.Tensor]  # with the gradient of what came out


def gradient_norms(
    model: nn.Module, scores: Callable[[], torch.Tensor], squares: Squares | None = None
) -> torch.Tensor:
    """Squared norm of the gradient of each row's score in all trained parameters, shape (B,), float32.

    Parameters
    ----------
    model : Module
        Its linear layers, embeddings and norms are called at most once in a forward pass, with rows first; an output
        layer may share the embedding's matrix. Gradient checkpointing must be off.
    scores : callable
        Calls the model on B rows and returns a score of each, shape (B,), such as the log-probability of its completion
        under the policy's temperature. A row's score must depend on that row alone.
    squares : mapping of Parameter to Tensor, optional
        Mean square of each coordinate's gradient, as `mean_squares` reads them from an optimiser: the norm is then in
        Adam's units. Matrices are taken by their row and column means; parameters that have not moved count nothing.

    Raises
    ------
    ValueError
        If a trained parameter belongs to a module whose calls are not understood, or has no mean square.
    """
    return score_gradients(model, scores, (squares,)).norms[0]


@dataclass(frozen=True, eq=False)
class ScoreGradients:
    """What one backward pass says of B scores.

    Attributes
    ----------
    scores : Tensor, shape (B,)
    norms : tuple of Tensor, shape (B,), float32
        Squared norms of the rows' gradients, in each of the units asked for.
    total : dict of Parameter to Tensor
        Gradient of the sum of all rows' scores, if it was asked for; without units.
    """

    scores: torch.Tensor
    norms: tuple[torch.Tensor, ...]
    total: dict[nn.Parameter, torch.Tensor]


def score_gradients(
    model: nn.Module,
    scores: Callable[[], torch.Tensor],
    units: Sequence[Squares | None] = (None,),
    *,
    total: bool = False,
) -> ScoreGradients:
    """Squared norms as of `gradient_norms` in several units, and the rows' summed gradient, from one backward pass.

    Parameters
    ----------
    model, scores
        As for `gradient_norms`.
    units : sequence of (mapping of Parameter to Tensor, or None)
        As ``squares`` there; None is the gradient's own unit.
    total : bool
        Whether the summed gradient is wanted. It has the size of the model.

    Raises
    ------
    ValueError
        As `gradient_norms`.
    """
    with torch.enable_grad(), _recorded(model) as calls:
        found = scores()
        summed = found.sum()
    wanted = [parameter for parameter in model.parameters() if total and parameter.requires_grad]
    gradients = torch.autograd.grad(summed, [*(call.output for call in calls), *wanted], allow_unused=True)
    outputs, own = gradients[: len(calls)], gradients[len(calls) :]
    used = [(call, gradient) for call, gradient in zip(calls, outputs, strict=True) if gradient is not None]
    for call, gradient in used:
        if len(call.inputs) != len(found) or len(gradient) != len(found):
            raise ValueError(
                f"module {call.name} is called with {len(call.inputs)} rows and not {len(found)}: completions meet "
                "in it, so that norms in its parameters cannot be taken; freeze them."
            )
    with torch.no_grad():
        norms = tuple(_norms(used, _Units(squares), len(found), found.device) for squares in units)
    kept = {parameter: each for parameter, each in zip(wanted, own, strict=True) if each is not None}
    return ScoreGradients(found.detach(), norms, kept)


def adam_factors(square: torch.Tensor) -> torch.Tensor:
    """What each coordinate of a parameter is multiplied by in Adam's units, of the shape of its mean squares, float32.

    A matrix is taken by its row and column means and a vector coordinate by coordinate, with the floor, as the norms of
    `gradient_norms` are: gradients multiplied by these factors have exactly those norms.

    Parameters
    ----------
    square : Tensor, of one or two dimensions
        Mean squares of the parameter's gradient.
    """
    square = square.float()
    if square.ndim != 2:
        return _inverse_root(square)
    rows, columns = _matrix_factors(square)
    return rows[:, None] * columns


def _norms(used: list[_Use], units: _Units, rows: int, device: torch.device) -> torch.Tensor:
    norms = torch.zeros(rows, device=device)
    for call, gradient in used:
        norms += _own(call, gradient, units).to(device)
    for embedding, head in _tied(used):
        norms += _met(embedding, head, units).to(device)
    return norms


def mean_squares(optimizer: torch.optim.Optimizer) -> dict[nn.Parameter, torch.Tensor] | None:
    """Mean square of each coordinate's gradient as an Adam optimiser keeps it; None before its first step.

    The correction for the beginning is left out, which is the same factor for all parameters.

    Raises
    ------
    ValueError
        If the optimiser does not keep mean squares of its parameters' shapes.
    """
    optimizer = getattr(optimizer, "optimizer", optimizer)  # within accelerate's wrapper
    state = optimizer.state
    if not state and "betas" in optimizer.defaults:
        return None
    found = {
        parameter: own["exp_avg_sq"]
        for parameter, own in state.items()
        if isinstance(own.get("exp_avg_sq"), torch.Tensor) and own["exp_avg_sq"].shape == parameter.shape
    }
    if not found or len(found) < len(state):
        raise ValueError(
            f"optimizer: {type(optimizer).__name__} does not keep a mean square of each coordinate (exp_avg_sq), as "
            "torch's Adam and AdamW do; take one of these, or norms that are not in an optimiser's units."
        )
    return found


@contextmanager
def _recorded(model: nn.Module) -> Iterator[list[_Call]]:
    """The calls of all modules that have trained parameters of their own, within."""
    calls: list[_Call] = []

    def hook_of(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, given: tuple[torch.Tensor, ...], output: object) -> None:
            if (
                len(given) != 1
                or not isinstance(output, torch.Tensor)
                or not output.requires_grad
                or any(call.module is module for call in calls)
            ):
                raise ValueError(
                    f"module {name} ({type(module).__name__}) has trained parameters and is not called once, with one "
                    "tensor and with gradients (gradient checkpointing has none), so norms in them cannot be taken."
                )
            calls.append(_Call(name, module, given[0].detach(), output))

        return hook

    handles = [
        module.register_forward_hook(hook_of(name))
        for name, module in model.named_modules()
        if any(parameter.requires_grad for parameter in module.parameters(recurse=False))
    ]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


class _Units:
    """How the coordinates of parameters are scaled; not at all without mean squares."""

    def __init__(self, squares: Squares | None):
        self._squares = squares

    def of(self, parameter: nn.Parameter, name: str) -> torch.Tensor | None:
        """Its mean squares, float32."""
        if self._squares is None:
            return None
        if parameter not in self._squares:
            raise ValueError(f"squares: there are none for a parameter of module {name}, of shape {parameter.shape}.")
        return self._squares[parameter].float()

    def matrix(self, call: _Call) -> tuple[torch.Tensor | float, torch.Tensor | float]:
        """Factors of the rows and columns of a module's weight."""
        square = self.of(call.module.weight, call.name)
        return (1.0, 1.0) if square is None else _matrix_factors(square)

    def vector(self, parameter: nn.Parameter, name: str) -> torch.Tensor | float:
        square = self.of(parameter, name)
        return 1.0 if square is None else _inverse_root(square)


def _matrix_factors(square: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Factors of a matrix's rows and columns, from its mean squares' row and column means."""
    return _inverse_root(square.mean(1)), _inverse_root(square.mean(0)) * square.mean().sqrt()


def _inverse_root(square: torch.Tensor) -> torch.Tensor:
    """``v^(-1/2)`` with the floor; 0 where all is 0."""
    mean = square.mean()
    return (square + FLOOR * mean).rsqrt() if mean > 0 else torch.zeros_like(square)


def _kind(module: nn.Module) -> type[nn.Module] | None:
    """Linear or Embedding where a module computes as they do, though it be of a subclass."""
    for kind in (nn.Linear, nn.Embedding):
        if isinstance(module, kind):
            if type(module).forward is not kind.forward:
                raise ValueError(f"a module of type {type(module).__name__} does more than {kind.__name__}.")
            return kind
    return None


def _factors(call: _Call, gradient: torch.Tensor, units: _Units) -> tuple[torch.Tensor, torch.Tensor]:
    """What went in, or ids, and the gradients of what came out, in units, shapes (B, T, in) and (B, T, out)."""
    rows, columns = units.matrix(call)
    batch, g = len(gradient), gradient.float()
    if _kind(call.module) is nn.Embedding:
        ids = call.inputs.reshape(batch, -1)
        kept = 1.0 if isinstance(rows, float) else rows[ids][..., None]
        if call.module.padding_idx is not None:
            kept = kept * (ids != call.module.padding_idx)[..., None]
        return ids, g.reshape(batch, -1, g.shape[-1]) * columns * kept
    x = call.inputs.float()
    return x.reshape(batch, -1, x.shape[-1]) * columns, g.reshape(batch, -1, g.shape[-1]) * rows


def _own(call: _Call, gradient: torch.Tensor, units: _Units) -> torch.Tensor:
    """Squared norms in a module's own parameters, shape (B,)."""
    kind, module = _kind(call.module), call.module
    if kind is None:
        return _direct(call, gradient, units)
    norms = torch.zeros(len(gradient), device=gradient.device)
    if module.weight.requires_grad:
        x, g = _factors(call, gradient, units)
        if kind is nn.Embedding:
            norms += ((x[:, :, None] == x[:, None]) * _gram(g)).sum((1, 2))
        elif x.shape[1] * (x.shape[2] + g.shape[2]) <= x.shape[2] * g.shape[2]:
            norms += (_gram(x) * _gram(g)).sum((1, 2))
        else:  # long rows: the gradient itself is less work, one completion at a time
            norms += torch.stack([(own.T @ given).square().sum() for own, given in zip(g, x, strict=True)])
    if kind is nn.Linear and module.bias is not None and module.bias.requires_grad:
        summed = gradient.float().reshape(len(gradient), -1, gradient.shape[-1]).sum(1)
        norms += (summed * units.vector(module.bias, call.name)).square().sum(1)
    return norms


def _direct(call: _Call, gradient: torch.Tensor, units: _Units) -> torch.Tensor:
    """Of any other module, such as a norm: its own small gradients, row by row."""
    own = {name: each.detach() for name, each in call.module.named_parameters(recurse=False) if each.requires_grad}

    def pull(inputs: torch.Tensor, back: torch.Tensor) -> dict[str, torch.Tensor]:
        _, vjp = torch.func.vjp(lambda given: torch.func.functional_call(call.module, given, (inputs,)), own)
        return vjp(back)[0]

    found = torch.func.vmap(pull)(call.inputs, gradient.to(call.output.dtype))
    factors = {name: units.vector(getattr(call.module, name), call.name) for name in own}
    return torch.stack([(found[name].float() * factors[name]).flatten(1).square().sum(1) for name in own]).sum(0)


def _tied(used: list[_Use]) -> list[tuple[_Use, _Use]]:
    """Pairs of an embedding and an output layer that have one matrix.

    Raises
    ------
    ValueError
        If modules share a matrix otherwise.
    """
    by_weight: dict[int, list[_Use]] = {}
    for call, gradient in used:
        for parameter in call.module.parameters(recurse=False):
            if parameter.requires_grad:
                by_weight.setdefault(id(parameter), []).append((call, gradient))
    shared = [sorted(each, key=lambda use: _kind(use[0].module) is nn.Linear) for each in by_weight.values()]
    pairs = []
    for uses in shared:
        if len(uses) == 1:
            continue
        if [_kind(call.module) for call, _ in uses] != [nn.Embedding, nn.Linear]:
            names = ", ".join(call.name for call, _ in uses)
            raise ValueError(f"modules {names} share parameters otherwise than an embedding and an output layer do.")
        pairs.append((uses[0], uses[1]))
    return pairs


def _met(embedding: _Use, head: _Use, units: _Units) -> torch.Tensor:
    """Twice the inner products of both uses of one matrix, shape (B,)."""
    (ids, into), (last, out) = _factors(*embedding, units), _factors(*head, units)
    met = out.gather(2, ids[:, None].expand(-1, out.shape[1], -1))  # at place s, the logit of the token at place t
    return 2 * (met * torch.bmm(last, into.transpose(1, 2))).sum((1, 2))


def _gram(each: torch.Tensor) -> torch.Tensor:
    return torch.bmm(each, each.transpose(1, 2))
