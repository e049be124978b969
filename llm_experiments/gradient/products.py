"""Inner products of scores, from the two factors of each completion's weight gradient.

The gradient of completion h in a linear map's weight is ``sum_t delta_t a_t'`` over its tokens t: input ``a_t``,
gradient ``delta_t`` at the output. Inner products of two completions are taken in the cheaper of two forms: the
gradients written out a few rows at a time, or ``sum_{t, s} (a_t . a_s) (delta_t . delta_s)`` without ever writing
them out (Goodfellow, 2015, "Efficient per-example gradient computations").
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch


@dataclass(frozen=True)
class Block:
    """Completions whose mutual inner products are wanted: ``first`` to ``last - 1``.

    total (float64 tensor, shape (last - first, last - first)): Inner products are added here.
    """

    first: int
    last: int
    total: torch.Tensor

    def span(self, bounds: Sequence[int]) -> slice:
        """The block's tokens in flat arrays whose completions begin at ``bounds``."""
        return slice(bounds[self.first], bounds[self.last])

    def bounds(self, bounds: Sequence[int]) -> list[int]:
        """Where the block's completions begin in its own tokens."""
        return [bound - bounds[self.first] for bound in bounds[self.first : self.last + 1]]


class ScoreProducts:
    """Sums of inner products over parameters: of all pairs of n completions, or of each with itself only.

    pairs: Whether all pairs are wanted.
    buffer_bytes: Memory that one summand may take.
    """

    def __init__(self, n: int, *, pairs: bool, buffer_bytes: int, device: torch.device):
        self.buffer_bytes = buffer_bytes
        self.total = torch.zeros((n, n) if pairs else (n,), dtype=torch.float64, device=device)

    def blocks(self) -> Iterator[Block]:
        """The square blocks of wanted inner products: one in all, or one for each completion."""
        if self.total.ndim == 2:
            yield Block(0, len(self.total), self.total)
        else:
            for h in range(len(self.total)):
                yield Block(h, h + 1, self.total[h].view(1, 1))

    def add_rows(self, rows: torch.Tensor) -> None:
        """Add parameters whose gradients are written out, shape (n, parameters)."""
        for block in self.blocks():
            add_gram(block.total, rows[block.first : block.last])

    def add_factors(self, inputs: torch.Tensor, deltas: torch.Tensor, bounds: Sequence[int]) -> None:
        """Add a linear map's weight.

        inputs: tensor, shape (tokens, d_in).
        deltas: tensor, shape (tokens, d_out).
        bounds: Completion h owns the tokens ``bounds[h]`` to ``bounds[h + 1] - 1``.
        """
        for block in self.blocks():
            span = block.span(bounds)
            add_factors(block.total, inputs[span], deltas[span], block.bounds(bounds), self.buffer_bytes)


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The precision of products of tensors of this type: at least float32."""
    return dtype if dtype == torch.float64 else torch.float32


def add_gram(total: torch.Tensor, rows: torch.Tensor) -> None:
    """Add ``rows @ rows.T``."""
    rows = rows.to(working_dtype(rows.dtype))
    total += (rows @ rows.T).double()


def add_factors(
    total: torch.Tensor, inputs: torch.Tensor, deltas: torch.Tensor, bounds: Sequence[int], buffer_bytes: int
) -> None:
    """Add a weight's inner products in the form with fewer multiplications."""
    n, tokens, d_in, d_out = len(total), len(inputs), inputs.shape[1], deltas.shape[1]
    dtype = working_dtype(deltas.dtype)
    # The form by pairs of tokens takes the factors as a whole; those of half precision must be copied for it.
    fits = dtype == deltas.dtype or 2 * tokens * (d_in + d_out) * dtype.itemsize <= buffer_bytes
    if fits and tokens**2 * (d_in + d_out + n) < d_in * d_out * (tokens + n**2):
        add_token_pairs(total, inputs, deltas, bounds, buffer_bytes)
    else:
        add_written_out(total, inputs, deltas, bounds, buffer_bytes)


def add_written_out(
    total: torch.Tensor, inputs: torch.Tensor, deltas: torch.Tensor, bounds: Sequence[int], buffer_bytes: int
) -> None:
    """Add a weight's inner products from the gradients of a few of its rows at a time."""
    n, d_in, d_out, dtype = len(total), inputs.shape[1], deltas.shape[1], working_dtype(deltas.dtype)
    rows = min(d_out, max(1, buffer_bytes // (n * d_in * dtype.itemsize)))
    gradients = torch.empty(n, rows, d_in, dtype=dtype, device=inputs.device)
    for first in range(0, d_out, rows):
        last = min(first + rows, d_out)
        part = gradients[:, : last - first]
        for h in range(n):
            span = slice(bounds[h], bounds[h + 1])
            torch.matmul(deltas[span, first:last].T.to(dtype), inputs[span].to(dtype), out=part[h])
        add_gram(total, part.reshape(n, -1))


def add_token_pairs(
    total: torch.Tensor, inputs: torch.Tensor, deltas: torch.Tensor, bounds: Sequence[int], buffer_bytes: int
) -> None:
    """Add a weight's inner products from those of all pairs of tokens, a few tokens against all at a time."""
    dtype = working_dtype(deltas.dtype)
    inputs, deltas, owner = inputs.to(dtype), deltas.to(dtype), owners(bounds, dtype, inputs.device)
    rows = max(1, buffer_bytes // (3 * len(inputs) * dtype.itemsize))
    for first in range(0, len(inputs), rows):
        part = slice(first, first + rows)
        add_pair_sums(total, owner, part, (inputs[part] @ inputs.T).mul_(deltas[part] @ deltas.T))


def add_pair_sums(total: torch.Tensor, owner: torch.Tensor, part: slice, products: torch.Tensor) -> None:
    """Sum products of the tokens ``part`` with all tokens over the tokens of each pair of completions."""
    total += owner[part].T.double() @ (products @ owner).double()


def owners(bounds: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Shape (tokens, n): 1 where a token belongs to a completion."""
    lengths = torch.tensor([after - before for before, after in pairwise(bounds)])
    completion = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    return torch.nn.functional.one_hot(completion, len(lengths)).to(device=device, dtype=dtype)
