"""Recording what enters the parts of a decoder layer and the gradients that come back to their outputs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from llm_experiments.gradient.architecture import DirectPart, LinearPart, Part
from llm_experiments.gradient.products import ScoreProducts


@dataclass
class Record:
    """One call of a module: what went in, and the gradient at what came out."""

    input: torch.Tensor
    delta: torch.Tensor | None = None


@contextmanager
def recording(parts: Sequence[Part]) -> Iterator[dict[str, Record]]:
    """Record the parts' calls within, by name; deltas are there after the backward pass. Hooks go at the end.

    Raises ValueError if a part is called twice, or otherwise than with one tensor.
    """
    records: dict[str, Record] = {}

    def hook_of(name: str):
        def hook(module: nn.Module, args: tuple, output: torch.Tensor) -> None:
            if name in records or len(args) != 1 or not isinstance(output, torch.Tensor):
                raise ValueError(
                    f"module {name} ({type(module).__name__}) is not called once with one tensor in each decoder "
                    "layer, so its scores cannot be taken; choose parameters of other modules."
                )
            records[name] = record = Record(args[0].detach())

            def keep(delta: torch.Tensor) -> None:
                record.delta = delta.detach()

            output.register_hook(keep)

        return hook

    handles = []
    try:
        for part in parts:
            handles.append(part.module.register_forward_hook(hook_of(part.name)))
        yield records
    finally:
        for handle in handles:
            handle.remove()


def direct_rows(part: DirectPart, record: Record) -> torch.Tensor:
    """Gradients of each completion of a micro-batch in a module's own parameters, shape (B, parameters)."""
    own = {name: getattr(part.module, name).detach() for name in part.parameters}

    def pull(inputs: torch.Tensor, delta: torch.Tensor) -> dict[str, torch.Tensor]:
        _, back = torch.func.vjp(lambda given: torch.func.functional_call(part.module, given, (inputs,)), own)
        return back(delta)[0]

    gradients = torch.func.vmap(pull)(record.input, record.delta)
    return torch.cat([gradients[name].flatten(1) for name in part.parameters], dim=1)


class PoolFactors:
    """Inputs and output gradients of some Linear modules of a layer, for the tokens of a whole pool.

    Modules that are called with the same tensor, such as the three projections of attention, share one copy of it.

    tokens: Tokens in the pool.
    dtype, device: As of the model.
    """

    def __init__(self, parts: Sequence[LinearPart], tokens: int, dtype: torch.dtype, device: torch.device):
        self.parts, self.tokens, self.options = parts, tokens, {"dtype": dtype, "device": device}
        self.deltas = {part.name: torch.empty(tokens, part.module.out_features, **self.options) for part in parts}
        self.inputs: dict[str, torch.Tensor] = {}
        self.source: dict[str, str] = {}

    def fill(self, records: dict[str, Record], read: torch.Tensor, span: slice) -> None:
        """Take over a micro-batch: the tokens at flat positions ``read`` become the pool's tokens ``span``."""
        if not self.source:
            self._share(records)
        for part in self.parts:
            record = records[part.name]
            self.deltas[part.name][span] = record.delta.flatten(0, 1)[read]
            if self.source[part.name] == part.name and part.weight:
                columns = part.module.in_features
                self.inputs[part.name][span, :columns] = record.input.flatten(0, 1)[read]

    def _share(self, records: dict[str, Record]) -> None:
        first: dict[tuple, str] = {}
        for part in self.parts:
            given = records[part.name].input
            source = first.setdefault((given.data_ptr(), given.shape, part.weight, part.bias), part.name)
            self.source[part.name] = source
            if source == part.name:  # a bias is a weight whose input is 1: the last column
                columns = part.module.in_features * part.weight + part.bias
                self.inputs[source] = torch.ones(self.tokens, columns, **self.options)

    def add_to(self, products: ScoreProducts, bounds: Sequence[int]) -> None:
        """Add the inner products of the modules' weights and biases."""
        for part in self.parts:
            products.add_factors(self.inputs[self.source[part.name]], self.deltas[part.name], bounds)
