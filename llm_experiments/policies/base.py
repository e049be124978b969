"""What a policy is: a language model that completes prompts, at weights that can be replaced."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llm_experiments.seeding import seed_of


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


@dataclass(frozen=True)
class SamplingSettings:
    """How completions are drawn. The full distribution is sampled (no top-k or top-p), so that scores are exact.

    temperature: Logits are divided by it, in sampling and in scores alike.
    batch_size: Completions generated at once.
    """

    temperature: float = 1.0
    max_new_tokens: int = 256
    batch_size: int = 64

    def __post_init__(self):
        if not self.temperature > 0:
            raise ValueError(f"temperature must be positive, got {self.temperature!r}; greedy answers have no scores.")
        for name in ("max_new_tokens", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)!r}.")


class Policy(ABC):
    """A language model that completes prompts."""

    sampling: SamplingSettings

    @abstractmethod
    def encode(self, prompt: str) -> tuple[int, ...]:
        """Token ids of a prompt as the model sees it, chat template applied where the policy uses one."""

    @abstractmethod
    def sample(self, prompt: str, n: int, *, seed: int) -> list[Completion]:
        """Draw ``n`` completions; the same seed on the same machine gives the same ones."""

    def sample_groups(self, prompts: Sequence[str], n: int, *, seed: int) -> list[list[Completion]]:
        """Draw ``n`` completions of each prompt; reproducible for the same prompts, ``n`` and seed together.

        Policies that can serve several prompts at once do so.
        """
        return [self.sample(prompt, n, seed=seed_of(seed, k)) for k, prompt in enumerate(prompts)]

    @abstractmethod
    def load_weights(self, checkpoint: str | Path) -> None:
        """Replace the weights by those of a model folder (safetensors) of the same architecture."""
