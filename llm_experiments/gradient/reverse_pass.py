"""Forward and reverse pass of a whole pool, one decoder layer at a time.

The forward pass keeps hidden states alone. Then, from the output layer down, each decoder layer is computed again with
gradients, as in gradient checkpointing; what enters its modules and the gradients at their outputs give the scores'
inner products in the layer's parameters, after which all of it is dropped.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from llm_experiments.gradient.architecture import Decoder, DirectPart, LinearPart, Part, Selection
from llm_experiments.gradient.capture import PoolFactors, Record, direct_rows, recording
from llm_experiments.gradient.memory import MemoryPlan
from llm_experiments.gradient.output_layer import OutputLayer, Predicted
from llm_experiments.gradient.pool import CompletionPool, MicroBatch, bounds
from llm_experiments.gradient.products import ScoreProducts


@dataclass
class Trace:
    """What the forward pass of a micro-batch leaves.

    calls: Arguments of each decoder layer beside the hidden states.
    states (dict of int to tensor, shape (B, T, d)): Hidden states that enter a decoder layer, or the final norm under
        the number of layers.
    gradient (tensor, shape (B, T, d)): At the hidden states that the reverse pass has come to.
    """

    batch: MicroBatch
    calls: dict[int, tuple[tuple, dict[str, Any]]] = field(default_factory=dict)
    states: dict[int, torch.Tensor] = field(default_factory=dict)
    gradient: torch.Tensor | None = None


@dataclass(frozen=True)
class PassResult:
    """Inner products (n, n) or squared norms (n,) of a pool's distinct completions; and their log-probabilities.

    sweeps: How often a decoder layer was differentiated: once, or more where the budget held only some of its modules.
    """

    products: torch.Tensor
    log_probs: torch.Tensor
    sweeps: int


class ReversePass:
    """The pass over one pool.

    pairs: Whether inner products of all pairs are wanted, or squared norms only.
    """

    def __init__(
        self,
        decoder: Decoder,
        selection: Selection,
        pool: CompletionPool,
        plan: MemoryPlan,
        *,
        temperature: float,
        pairs: bool,
    ):
        self.decoder, self.selection, self.pool, self.plan = decoder, selection, pool, plan
        self.products = ScoreProducts(len(pool), pairs=pairs, buffer_bytes=plan.buffer_bytes, device=decoder.device)
        self.output = OutputLayer(decoder, selection, temperature=temperature, buffer_bytes=plan.buffer_bytes)
        self.bounds, self.predicted_bounds = bounds(pool.lengths), bounds(pool.predicted)
        self.cuts = pool.cuts(plan.batch_tokens)
        self.sweeps = 1

    def run(self) -> PassResult:
        """Scores' inner products in the selected parameters."""
        traces = [self._forward(first, last) for first, last in self.cuts]
        self._check(traces[0])
        predicted, log_probs = self._output_layer(traces)
        top = len(self.decoder.layers)
        for first in reversed(range(self.selection.lowest, top, self.plan.stride)):
            layers = range(first, min(first + self.plan.stride, top))
            for trace in traces:
                self._recompute(trace, layers)
            for index in reversed(layers):
                self._layer(index, traces)
        embedding = {}
        if self.selection.embedding:
            embedding = {
                "embedded": torch.cat([trace.gradient.flatten(0, 1)[trace.batch.read] for trace in traces]),
                "ids": torch.cat([trace.batch.ids.flatten()[trace.batch.read] for trace in traces]),
                "bounds": self.bounds,
            }
        if predicted is not None or embedding:
            self.output.add(self.products, predicted, self.predicted_bounds, **embedding)
        return PassResult(self.products.total, log_probs, self.sweeps)

    @torch.no_grad()
    def _forward(self, first: int, last: int) -> Trace:
        trace, layers = Trace(MicroBatch.of(self.pool, first, last, self.decoder.device)), self.decoder.layers
        kept = {*range(self.selection.lowest, len(layers), self.plan.stride)}

        def keep(index: int):
            def hook(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
                if not args:
                    raise ValueError(f"{type(module).__name__} does not take hidden states as its first argument.")
                trace.calls[index] = (args[1:], kwargs)
                if index in kept:
                    trace.states[index] = args[0]

            return hook

        def keep_final(module: nn.Module, args: tuple) -> None:
            trace.states[len(layers)] = args[0]

        handles = []
        try:
            for index in range(self.selection.lowest, len(layers)):
                handles.append(layers[index].register_forward_pre_hook(keep(index), with_kwargs=True))
            handles.append(self.decoder.norm.register_forward_pre_hook(keep_final))
            self.decoder.body(input_ids=trace.batch.ids, use_cache=False)
        finally:
            for handle in handles:
                handle.remove()
        return trace

    @torch.no_grad()
    def _check(self, trace: Trace) -> None:
        """Refuse a model that does more around its decoder layers than embed, normalise and multiply."""
        name, head = type(self.decoder.model).__name__, self.decoder.head
        if self.selection.embedding and not torch.equal(trace.states[0], self.decoder.embedding(trace.batch.ids)):
            raise ValueError(f"{name} changes token embeddings before its first layer; choose parameters without them.")
        prompt = trace.batch.ids[:1, : len(self.pool.prompt)]
        expected = self.decoder.model(input_ids=prompt, use_cache=False, logits_to_keep=1).logits[0, -1].float()
        final = trace.states[len(self.decoder.layers)][:1, prompt.shape[1] - 1]
        apart = (head(self.decoder.norm(final))[0].float() - expected).abs().max()
        tolerance = 1e-3 if self.decoder.dtype in (torch.float32, torch.float64) else 0.1
        if not apart <= tolerance * (1 + expected.abs().max()):
            raise ValueError(
                f"{name} does not compute its logits as output layer of final norm (they differ by {apart:.2g}), so "
                "its scores cannot be taken; models built as Llama or Qwen2 can."
            )

    def _output_layer(self, traces: Sequence[Trace]) -> tuple[Predicted | None, torch.Tensor]:
        """Log-probabilities, and gradients at what enters the final norm."""
        top, parts, norm = len(self.decoder.layers), self.selection.norm, self.decoder.norm
        kept, rows, log_probs = [], [], []
        for trace in traces:
            entering, batch = trace.states.pop(top).requires_grad_(), trace.batch
            with torch.enable_grad(), recording(parts) as records:
                hidden = norm(entering)
                predicting = hidden.detach().flatten(0, 1)[batch.predicting]
                predicted, token_log_probs, gradient = self.output.predict(predicting, batch.targets)
                if parts or self.selection.lowest < top:
                    at_hidden = torch.zeros_like(hidden)
                    at_hidden.view(-1, hidden.shape[-1])[batch.predicting] = gradient.to(hidden.dtype)
                    (trace.gradient,) = torch.autograd.grad(hidden, entering, at_hidden)
            rows.append(self._rows(parts, records))
            log_probs.append(token_log_probs.double())
            if self.selection.head_weight or self.selection.head_bias:
                kept.append(predicted)
        self._add_rows(rows)
        owner = torch.repeat_interleave(torch.arange(len(self.pool)), torch.from_numpy(self.pool.predicted))
        sums = torch.zeros(len(self.pool), dtype=torch.float64, device=self.decoder.device)
        sums.index_add_(0, owner.to(sums.device), torch.cat(log_probs))
        return Predicted.joined(kept) if kept else None, sums

    @torch.no_grad()
    def _recompute(self, trace: Trace, layers: range) -> None:
        """States that enter the layers of a stretch, from those that enter its first."""
        for index in layers[:-1]:
            args, kwargs = trace.calls[index]
            trace.states[index + 1] = _hidden(self.decoder.layers[index](trace.states[index], *args, **kwargs))

    def _layer(self, index: int, traces: Sequence[Trace]) -> None:
        """Take the reverse pass through one decoder layer, and add the inner products in its parameters."""
        parts = self.selection.layers[index]
        linear = [part for part in parts if isinstance(part, LinearPart)]
        direct = [part for part in parts if isinstance(part, DirectPart)]
        shares = list(self._shares(linear)) or [[]]
        self.sweeps = max(self.sweeps, len(shares))
        for number, share in enumerate(shares):
            factors = PoolFactors(share, self.bounds[-1], self.decoder.dtype, self.decoder.device)
            last, rows = number == len(shares) - 1, []
            for (start, stop), trace in zip(self.cuts, traces, strict=True):
                recorded = [*share, *direct] if last else share
                gradient, records = self._differentiate(index, trace, recorded)
                factors.fill(records, trace.batch.read, slice(self.bounds[start], self.bounds[stop]))
                if last:
                    rows.append(self._rows(direct, records))
                    trace.gradient = gradient
                    del trace.states[index], trace.calls[index]
            self._add_rows(rows)
            factors.add_to(self.products, self.bounds)

    def _shares(self, parts: Sequence[LinearPart]) -> Iterator[list[LinearPart]]:
        """Modules by turns, such that what must be kept of each turn's fits the plan."""
        share, taken, per_element = [], 0, self.bounds[-1] * self.decoder.dtype.itemsize
        for part in parts:
            needed = part.width * per_element
            if share and taken + needed > self.plan.capture_bytes:
                yield share
                share, taken = [], 0
            share.append(part)
            taken += needed
        if share:
            yield share

    def _differentiate(self, index: int, trace: Trace, parts: Sequence[Part]) -> tuple[torch.Tensor, dict[str, Record]]:
        args, kwargs = trace.calls[index]
        entering = trace.states[index].detach().requires_grad_()
        with torch.enable_grad(), recording(parts) as records:
            leaving = _hidden(self.decoder.layers[index](entering, *args, **kwargs))
            (gradient,) = torch.autograd.grad(leaving, entering, trace.gradient)
        return gradient, records

    def _rows(self, parts: Sequence[DirectPart], records: dict[str, Record]) -> list[torch.Tensor]:
        return [direct_rows(part, records[part.name]) for part in parts]

    def _add_rows(self, rows: Sequence[list[torch.Tensor]]) -> None:
        """Add gradients that are written out: for each micro-batch, one tensor of each part."""
        for of_part in zip(*rows, strict=True):
            self.products.add_rows(torch.cat(of_part))


def _hidden(output: Any) -> torch.Tensor:
    """The hidden states among what a decoder layer returns; some releases return a tuple."""
    return output[0] if isinstance(output, tuple) else output


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode with no parameter requiring a gradient, and everything back at the end."""
    training = [(module, module.training) for module in model.modules()]
    requiring = [parameter for parameter in model.parameters() if parameter.requires_grad]
    precision = torch.get_float32_matmul_precision()
    try:
        model.eval()
        for parameter in requiring:
            parameter.requires_grad_(False)
        torch.set_float32_matmul_precision("highest")  # no TF32: inner products of large sums need the digits
        with torch.inference_mode(False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
        for parameter in requiring:
            parameter.requires_grad_(True)
        for module, mode in training:
            module.training = mode


@contextmanager
def requiring(parameters: Sequence[torch.Tensor]) -> Iterator[None]:
    """Let these parameters alone require gradients, within `undisturbed`."""
    try:
        for parameter in parameters:
            parameter.requires_grad_(True)
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(False)
