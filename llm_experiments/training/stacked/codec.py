"""Texts to tokens and back, token by token."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class TokenCodec:
    """A byte-level tokenizer, whose tokens can be decoded one by one.

    A character that is made of several tokens comes back as signs of replacement.
    """

    tokenizer: PreTrainedTokenizerBase

    @property
    def end(self) -> int:
        return int(self.tokenizer.eos_token_id)

    @property
    def pad(self) -> int:
        given = self.tokenizer.pad_token_id
        return self.end if given is None else int(given)

    def tokens(self, prompts: Sequence[str]) -> torch.Tensor:
        """Tokens of prompts of one length, shape (prompts, P).

        Raises ValueError if the prompts are not of one length.
        """
        rows = self.tokenizer(list(prompts)).input_ids
        if len({len(row) for row in rows}) != 1:
            raise ValueError("prompts: stacked runs take prompts of one length in tokens; these differ.")
        return torch.tensor(rows)

    def texts(self, completions: torch.Tensor) -> list[str]:
        """Text of each completion up to its end, for tokens of shape (rows, N)."""
        names = self._names
        found = []
        for row in completions.tolist():
            stop = row.index(self.end) if self.end in row else len(row)
            found.append("".join(names[token] for token in row[:stop]))
        return found

    @cached_property
    def _names(self) -> list[str]:
        return [self.tokenizer.decode([token]) for token in range(len(self.tokenizer))]
