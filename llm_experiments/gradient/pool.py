"""The pooled completions of one prompt as token arrays: distinct ones only, in micro-batches of similar length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch


@dataclass(frozen=True)
class CompletionPool:
    """Distinct completions of one prompt, shortest first; a completion drawn twice has one score.

    completions: Distinct, by length.
    index (ndarray of int, shape (N,)): Which distinct completion each of the N given ones is.
    """

    prompt: tuple[int, ...]
    completions: tuple[tuple[int, ...], ...]
    index: np.ndarray

    @classmethod
    def of(cls, prompt_ids: Sequence[int], completions: Sequence[Sequence[int]], *, vocabulary: int) -> CompletionPool:
        """Pool of these completions.

        Raises ValueError if there is no prompt token, no completion, an empty one, or a token outside the vocabulary.
        """
        prompt, given = tuple(map(int, prompt_ids)), [tuple(map(int, completion)) for completion in completions]
        if not prompt:
            raise ValueError("prompt_ids is empty: the first token of a completion needs one to be predicted from.")
        if not given:
            raise ValueError("completions is empty; give at least one.")
        for position, completion in enumerate(given):
            if not completion:
                raise ValueError(f"completions[{position}] has no token; a completion holds at least its end token.")
        outside = {token for tokens in (prompt, *given) for token in tokens if not 0 <= token < vocabulary}
        if outside:
            raise ValueError(f"token ids {sorted(outside)[:5]} lie outside the model's vocabulary of {vocabulary}.")
        distinct = sorted(set(given), key=lambda completion: (len(completion), completion))
        place = {completion: position for position, completion in enumerate(distinct)}
        return cls(prompt, tuple(distinct), np.array([place[completion] for completion in given]))

    def __len__(self) -> int:
        return len(self.completions)

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens that the model reads for each completion: the prompt and all of the completion but its last token."""
        return np.array([len(self.prompt) + len(completion) - 1 for completion in self.completions])

    @cached_property
    def predicted(self) -> np.ndarray:
        """Tokens of each completion."""
        return np.array([len(completion) for completion in self.completions])

    def part(self, first: int, last: int) -> CompletionPool:
        """The distinct completions ``first`` to ``last - 1`` as a pool."""
        return CompletionPool(self.prompt, self.completions[first:last], np.arange(last - first))

    def cuts(self, batch_tokens: int) -> list[tuple[int, int]]:
        """Ranges of completions whose padded micro-batches hold at most ``batch_tokens`` tokens, or one completion."""
        cuts, first = [], 0
        for last in range(1, len(self) + 1):
            if last == len(self) or (last + 1 - first) * self.lengths[last] > batch_tokens:
                cuts.append((first, last))
                first = last
        return cuts


@dataclass(frozen=True)
class MicroBatch:
    """Some completions of a pool as one right-padded batch of shape (B, T).

    The decoder is causal, so padding on the right changes nothing before it and needs no mask.

    ids (integer tensor, shape (B, T)): Prompt and completion without its last token; zeros after it.
    read: Flat positions in (B, T) that hold tokens, completion by completion.
    predicting: Flat positions whose outputs predict the completions' tokens.
    targets: The tokens that they predict.
    """

    ids: torch.Tensor
    read: torch.Tensor
    predicting: torch.Tensor
    targets: torch.Tensor

    @classmethod
    def of(cls, pool: CompletionPool, first: int, last: int, device: torch.device) -> MicroBatch:
        """Completions ``first`` to ``last - 1`` of the pool."""
        width = int(pool.lengths[first:last].max())
        ids = np.zeros((last - first, width), dtype=np.int64)
        for row, completion in enumerate(pool.completions[first:last]):
            tokens = pool.prompt + completion[:-1]
            ids[row, : len(tokens)] = tokens
        column = np.arange(width)
        holds = column < pool.lengths[first:last, None]
        predicts = holds & (column >= len(pool.prompt) - 1)
        targets = np.concatenate([np.array(completion) for completion in pool.completions[first:last]])
        arrays = (ids, np.flatnonzero(holds), np.flatnonzero(predicts), targets)
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))


def bounds(lengths: np.ndarray) -> list[int]:
    """Where each completion's tokens begin in the flat arrays, and where the last one's end."""
    return [0, *np.cumsum(lengths).tolist()]
