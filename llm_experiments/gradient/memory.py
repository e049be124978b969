"""The memory of a reverse pass: planned before it starts, measured while it runs."""

from __future__ import annotations

import math
import resource
import sys
import threading
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
from torch import nn

from llm_experiments.gradient.architecture import Decoder, LinearPart, Selection
from llm_experiments.gradient.pool import CompletionPool
from llm_experiments.gradient.products import working_dtype

BUFFER_LIMIT = 2**28  # a larger buffer saves no time
BUFFER_ROWS = 8  # rows of the widest weight that a buffer must hold, or the pass would crawl
GIB = 2**30
SHARE = 0.95  # of the budget that is planned with; the rest is for libraries' own buffers and rounding up


class MemoryBudgetError(ValueError):
    """The budget cannot hold the least that a reverse pass needs."""


@dataclass(frozen=True)
class MemoryPlan:
    """How a reverse pass keeps its budget.

    batch_tokens: Tokens of a micro-batch.
    stride: Hidden states are kept at each so many layers, and computed again between them.
    capture_bytes: For inputs and output gradients of a decoder layer's modules; beyond it they take turns.
    buffer_bytes: For one step of a product.
    """

    batch_tokens: int
    stride: int
    capture_bytes: int
    buffer_bytes: int


def plan_memory(
    decoder: Decoder, selection: Selection, pool: CompletionPool, *, memory_gib: float, batch_tokens: int, pairs: bool
) -> MemoryPlan:
    """Fit a reverse pass over a pool into a budget, at the least cost of time.

    Micro-batches shrink first, then hidden states are kept at fewer layers, then modules take turns.

    memory_gib: Budget beyond the model itself.
    batch_tokens: Most tokens of a micro-batch.
    pairs: Whether inner products of all pairs are wanted.
    Raises MemoryBudgetError if not even single completions, the fewest hidden states and one module at a time fit.
    """
    need = _Need(decoder, selection, pool, n=len(pool) if pairs else 1)
    budget = SHARE * memory_gib * GIB
    layers = len(decoder.layers) - selection.lowest
    longest = int(pool.lengths.max())
    sizes = [max(longest, batch_tokens >> halvings) for halvings in range(max(1, batch_tokens.bit_length()))]
    strides = sorted({1, 2, max(1, round(math.sqrt(layers)))})
    least = math.inf
    # One backward pass per completion where any plan allows it, so modules take turns only as the last resort.
    for kept_at_once in (need.layer_modules, need.largest_module):
        for stride, size in product(strides, dict.fromkeys(sizes)):
            fixed = need.states(stride, size) + need.micro_batch(size) + need.least_buffer
            least = min(least, fixed + kept_at_once)
            left = budget - fixed
            if left < kept_at_once:
                continue
            capture = int(min(need.layer_modules, left))
            buffer = int(min(need.least_buffer + left - capture, max(BUFFER_LIMIT, need.least_buffer)))
            return MemoryPlan(size, stride, capture, buffer)
    raise MemoryBudgetError(
        f"memory_gib = {memory_gib:g} cannot hold the scores of {len(pool)} distinct completions with "
        f"{need.tokens:,} tokens: at least {least / SHARE / GIB:.3g} GiB are needed. Raise memory_gib, choose fewer "
        "parameters, or lower the number of completions or their length."
    )


class _Need:
    """Bytes that the pieces of a pass need."""

    def __init__(self, decoder: Decoder, selection: Selection, pool: CompletionPool, *, n: int):
        self.element, self.work = decoder.dtype.itemsize, working_dtype(decoder.dtype).itemsize
        self.width, self.layers = decoder.head.in_features, len(decoder.layers) - selection.lowest
        self.tokens, self.n, self.pool = int(pool.lengths.sum()), n, pool
        self.heads = getattr(decoder.model.config, "num_attention_heads", 1)
        inside = [module for module in decoder.layers[-1].modules() if isinstance(module, nn.Linear)]
        self.layer_width = sum(module.in_features + module.out_features for module in inside)
        by_layer = [[part.width for part in parts if isinstance(part, LinearPart)] for parts in selection.layers]
        per_token = self.tokens * self.element
        self.largest_module = per_token * max((max(widths) for widths in by_layer if widths), default=0)
        self.layer_modules = per_token * max((sum(widths) for widths in by_layer), default=0)
        widest = max([self.width, *(module.in_features for module in inside)])
        predicted = int(pool.predicted.sum()) if n > 1 else int(pool.predicted.max())
        of_row = (n + 1) * widest + 6 * predicted
        self.least_buffer = self.work * BUFFER_ROWS * of_row + 8 * n * n

    def states(self, stride: int, size: int) -> int:
        """Hidden states that are kept, two gradients, final hidden states."""
        kept = math.ceil(self.layers / stride) + (stride if stride > 1 else 0) + 1
        padded = sum((last - first) * int(self.pool.lengths[last - 1]) for first, last in self.pool.cuts(size))
        predicted = int(self.pool.predicted.sum())
        return self.width * ((kept + 2) * padded * self.element + predicted * self.work)

    def micro_batch(self, size: int) -> int:
        """What a decoder layer and the output layer keep for a micro-batch's gradient, attention written out."""
        longest = int(self.pool.lengths.max())
        per_token = 2 * self.layer_width + 12 * self.width + 2 * self.heads * longest
        return min(size, len(self.pool) * longest) * (per_token * self.element + 3 * self.width * self.work)


class PeakMemory:
    """Peak memory within a ``with`` block beyond that at its start.

    On a GPU, ``torch.cuda.max_memory_allocated``. On a CPU the process's resident set, looked at every few
    milliseconds where ``/proc`` tells it; elsewhere the growth of its highest mark, which misses what stays below an
    earlier peak.

    peak_bytes: Known after the block. Small where memory that was freed before is used again.
    total_bytes: The peak itself, with what was there at the start.
    """

    INTERVAL = 0.004
    STATUS = Path("/proc/self/statm")

    def __init__(self, device: torch.device):
        self.device, self.peak_bytes, self.total_bytes = device, 0, 0

    def __enter__(self) -> PeakMemory:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self.start = torch.cuda.memory_allocated(self.device)
            return self
        self.start = self.highest = self._resident()
        self.done = threading.Event()
        self.sampler = threading.Thread(target=self._sample, daemon=True)
        self.sampler.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.device.type == "cuda":
            self.highest = torch.cuda.max_memory_allocated(self.device)
        else:
            self.done.set()
            self.sampler.join()
            self.highest = max(self.highest, self._resident())
        self.peak_bytes, self.total_bytes = self.highest - self.start, self.highest

    def _sample(self) -> None:
        while not self.done.wait(self.INTERVAL):
            self.highest = max(self.highest, self._resident())

    def _resident(self) -> int:
        if self.STATUS.exists():
            return int(self.STATUS.read_text().split()[1]) * resource.getpagesize()
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
