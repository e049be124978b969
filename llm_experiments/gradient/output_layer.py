"""The output layer's part of scores, a few vocabulary rows at a time; logits of all tokens are never held at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from llm_experiments.gradient.architecture import Decoder, Selection
from llm_experiments.gradient.products import (
    Block,
    ScoreProducts,
    add_gram,
    add_pair_sums,
    add_written_out,
    owners,
    working_dtype,
)


@dataclass(frozen=True)
class Predicted:
    """Tokens that the policy chose, in order of the completions.

    hidden (tensor, shape (tokens, d)): Final hidden states that they were predicted from, at least float32.
    targets: integer tensor, shape (tokens,).
    log_normalizer (tensor, shape (tokens,)): Log-sum-exp of the tempered logits.
    """

    hidden: torch.Tensor
    targets: torch.Tensor
    log_normalizer: torch.Tensor

    def __getitem__(self, span: slice) -> Predicted:
        return Predicted(self.hidden[span], self.targets[span], self.log_normalizer[span])

    @classmethod
    def joined(cls, parts: Sequence[Predicted]) -> Predicted:
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))


class OutputLayer:
    """Scores of the policy ``softmax(logits / temperature)`` at its logits, and what follows from them.

    buffer_bytes: Memory that one step may take.
    """

    def __init__(self, decoder: Decoder, selection: Selection, *, temperature: float, buffer_bytes: int):
        self.weight, self.bias = decoder.head.weight.detach(), decoder.head.bias
        self.selection, self.padding_id = selection, decoder.embedding.padding_idx
        self.temperature, self.buffer_bytes = temperature, buffer_bytes
        self.dtype = working_dtype(self.weight.dtype)

    def logits(self, hidden: torch.Tensor, rows: slice | torch.Tensor) -> torch.Tensor:
        """Tempered logits of these vocabulary rows, shape (tokens, rows)."""
        logits = hidden @ self.weight[rows].to(self.dtype).T
        if self.bias is not None:
            logits += self.bias.detach()[rows].to(self.dtype)
        return logits.div_(self.temperature)

    def vocabulary(self, per_row: int) -> Iterator[slice]:
        """Slices of the vocabulary whose rows take ``per_row`` elements each."""
        rows = max(1, self.buffer_bytes // (per_row * self.dtype.itemsize))
        return (slice(first, min(first + rows, len(self.weight))) for first in range(0, len(self.weight), rows))

    def predict(self, hidden: torch.Tensor, targets: torch.Tensor) -> tuple[Predicted, torch.Tensor, torch.Tensor]:
        """Log-probabilities of tokens, shape (tokens,), and their gradients in the hidden states, (tokens, d)."""
        hidden = hidden.to(self.dtype)
        width = 3 * len(hidden) + hidden.shape[1]
        normalizer = torch.full((len(hidden),), -torch.inf, dtype=self.dtype, device=hidden.device)
        chosen = torch.empty_like(normalizer)
        for rows in self.vocabulary(width):
            logits = self.logits(hidden, rows)
            normalizer = torch.logaddexp(normalizer, logits.logsumexp(dim=1))
            here = (targets >= rows.start) & (targets < rows.stop)
            chosen[here] = logits[here].gather(1, targets[here, None] - rows.start)[:, 0]
        predicted = Predicted(hidden, targets, normalizer)
        gradient = torch.zeros_like(hidden)
        for rows in self.vocabulary(width):
            gradient += self.deltas(predicted, rows) @ self.weight[rows].to(self.dtype)
        return predicted, chosen - normalizer, gradient

    def deltas(self, predicted: Predicted, rows: slice | torch.Tensor) -> torch.Tensor:
        """Gradients at the logits of these vocabulary rows, ``(1{row = target} - pi(row)) / temperature``."""
        logits = self.logits(predicted.hidden, rows)
        ids = torch.arange(rows.start, rows.stop, device=logits.device) if isinstance(rows, slice) else rows
        probabilities = logits.sub_(predicted.log_normalizer[:, None]).exp_()
        return probabilities.neg_().add_(predicted.targets[:, None] == ids).div_(self.temperature)

    def add(
        self,
        products: ScoreProducts,
        predicted: Predicted | None,
        predicted_bounds: Sequence[int],
        *,
        embedded: torch.Tensor | None = None,
        ids: torch.Tensor | None = None,
        bounds: Sequence[int] = (),
    ) -> None:
        """Add the inner products in the chosen parameters of output layer and embedding.

        predicted: Of all completions; None if no parameter of the output layer is chosen.
        predicted_bounds: Where each completion's predicted tokens begin.
        embedded (tensor, shape (tokens, d), optional): Gradients at the embeddings of the tokens that were read; needed
            if the embedding is chosen.
        ids, bounds: These tokens, and where each completion's begin.
        """
        for block in products.blocks():
            chosen, starts = None, block.bounds(predicted_bounds)
            if predicted is not None:
                chosen = predicted[block.span(predicted_bounds)]
                self._add_head(block.total, chosen, starts)
            if self.selection.embedding:
                span = block.span(bounds)
                tied = chosen if self.selection.head_weight and self.selection.tied else None
                self._add_embedding(block, embedded[span], ids[span], block.bounds(bounds), tied, starts)

    def _add_head(self, total: torch.Tensor, predicted: Predicted, starts: list[int]) -> None:
        inputs = self._inputs(predicted.hidden)
        tokens, d_in, vocabulary = *inputs.shape, len(self.weight)
        pairs = tokens**2 * (vocabulary + d_in) < vocabulary * d_in * (tokens + len(total) ** 2)
        if pairs and 4 * tokens**2 * self.dtype.itemsize <= self.buffer_bytes:
            products = torch.zeros(tokens, tokens, dtype=self.dtype, device=inputs.device)
            for rows in self.vocabulary(3 * tokens + inputs.shape[1]):
                deltas = self.deltas(predicted, rows)
                products += deltas @ deltas.T
            owner = owners(starts, self.dtype, inputs.device)
            add_pair_sums(total, owner, slice(None), products.mul_(inputs @ inputs.T))
            return
        for rows in self.vocabulary(2 * (3 * tokens + d_in)):
            add_written_out(total, inputs, self.deltas(predicted, rows), starts, self.buffer_bytes // 2)

    def _inputs(self, hidden: torch.Tensor) -> torch.Tensor:
        parts = [hidden] if self.selection.head_weight else []
        if self.selection.head_bias:
            parts.append(torch.ones_like(hidden[:, :1]))
        return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]

    def _add_embedding(
        self,
        block: Block,
        embedded: torch.Tensor,
        ids: torch.Tensor,
        bounds: list[int],
        tied: Predicted | None,
        starts: list[int],
    ) -> None:
        """Add the embedding's part, and its products with the output layer's where they are one matrix.

        Only rows of tokens that were read have a gradient, so a few rows of the matrix are looked at, not all.
        """
        n, d = block.last - block.first, embedded.shape[1]
        owner = owners(bounds, self.dtype, ids.device).argmax(dim=1)
        used, place = torch.unique(ids, return_inverse=True)
        rows = max(1, self.buffer_bytes // (2 * n * d * self.dtype.itemsize))
        for first in range(0, len(used), rows):
            part = used[first : first + rows]
            here = (place >= first) & (place < first + rows)
            if self.padding_id is not None:  # torch gives the embedding of the padding token no gradient
                here &= ids != self.padding_id
            table = torch.zeros(n * len(part), d, dtype=self.dtype, device=ids.device)
            table.index_add_(0, owner[here] * len(part) + place[here] - first, embedded[here].to(self.dtype))
            read = table.view(n, -1)
            add_gram(block.total, read)
            if tied is not None:
                deltas = self.deltas(tied, part)
                spans = [slice(*pair) for pair in pairwise(starts)]
                written = torch.stack([(deltas[span].T @ tied.hidden[span]).flatten() for span in spans])
                cross = (written @ read.T).double()
                block.total.add_(cross).add_(cross.T)
