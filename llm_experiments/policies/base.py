"""What a policy is: a language model that completes prompts, at weights that can be replaced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import SamplingConfig
from .prompting import encode_prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Completion:
    """One sampled answer.

    token_ids: Generated tokens, the end-of-sequence token included where it was reached.
    log_probs: Log-probability of each token under the distribution that it was sampled from: temperature applied.
    text: The tokens as text, without special tokens.
    finished: Whether the model ended the completion itself; False where it was cut at the token limit.
    """

    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    text: str
    finished: bool

    def __len__(self) -> int:
        return len(self.token_ids)


class Policy(ABC):
    """A language model that completes prompts.

    sampling: The full distribution is sampled (no top-k or top-p), so that scores are exact.
    chat: Whether prompts go through the tokenizer's chat template.
    system: System message of the chat template; None leaves it to the template.
    eos_ids: Tokens that end a completion.
    context: Tokens of prompt and completion that the model can hold; None where that is not known.
    """

    sampling: SamplingConfig
    tokenizer: PreTrainedTokenizerBase
    chat: bool
    system: str | None
    eos_ids: tuple[int, ...]
    context: int | None

    def encode(self, prompt: str) -> tuple[int, ...]:
        """Token ids of a prompt as the model sees it, chat template applied where the policy uses one.

        Raises ValueError if the prompt has no token.
        """
        return encode_prompt(self.tokenizer, prompt, chat=self.chat, system=self.system)

    def encode_all(self, prompts: Sequence[str]) -> list[tuple[int, ...]]:
        """`encode` of each; a ValueError if one and its completion could exceed the model's context."""
        encoded = [self.encode(prompt) for prompt in prompts]
        length = max(map(len, encoded), default=0) + self.sampling.max_new_tokens
        if self.context is not None and length > self.context:
            raise ValueError(
                f"prompt and max_new_tokens = {self.sampling.max_new_tokens} make {length} tokens, but the model's "
                f"context holds {self.context}; lower max_new_tokens."
            )
        return encoded

    def sample(self, prompt: str, n: int, *, seed: int) -> list[Completion]:
        """Draw ``n`` completions; the same seed on the same machine gives the same ones, whatever was drawn before."""
        return self.sample_groups([prompt], n, seed=seed)[0]

    def sample_groups(self, prompts: Sequence[str], n: int, *, seed: int) -> list[list[Completion]]:
        """Draw ``n`` completions of each prompt; reproducible for the same prompts, ``n`` and seed together.

        Log-probabilities are those of the distribution that each token was drawn from. The state of the global
        generators is left as it was.

        Raises ValueError if ``n`` or ``seed`` is out of range, or prompt and completion could exceed the model's
            context.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n!r}.")
        if seed < 0:
            raise ValueError(f"seed must be at least 0, got {seed!r}.")
        return self._sample_groups(self.encode_all(prompts), n, seed)

    @abstractmethod
    def _sample_groups(self, prompts: list[tuple[int, ...]], n: int, seed: int) -> list[list[Completion]]:
        """As `sample_groups`, of the prompts' tokens."""

    @abstractmethod
    def load_weights(self, checkpoint: str | Path) -> None:
        """Replace the weights by those of a model folder (safetensors) of the same architecture."""
