"""The shapes of models, which memory and disk hang on, known before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llm_experiments.config import ModelConfig

GIB = 2**30
BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class ModelShape:
    """What memory and disk hang on, for models built as Llama and Qwen2 are.

    tied: Whether input and output embeddings are one matrix.
    biases: Whether query, key and value projections have biases (Qwen2).
    """

    hidden: int
    layers: int
    feed_forward: int
    heads: int
    key_value_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    biases: bool = True

    @property
    def parameters(self) -> int:
        """Number of weights, exact."""
        wide, narrow = self.heads * self.head_dim, self.key_value_heads * self.head_dim  # of queries, and of keys
        attention = self.hidden * (2 * wide + 2 * narrow) + (wide + 2 * narrow if self.biases else 0)
        layer = attention + 3 * self.hidden * self.feed_forward + 2 * self.hidden
        return self.layers * layer + self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden

    @classmethod
    def of_config(cls, config: object) -> ModelShape:
        """The shape in a transformers configuration."""
        heads = config.num_attention_heads
        return cls(
            hidden=config.hidden_size,
            layers=config.num_hidden_layers,
            feed_forward=config.intermediate_size,
            heads=heads,
            key_value_heads=config.num_key_value_heads or heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            vocabulary=config.vocab_size,
            tied=bool(config.tie_word_embeddings),
            biases=config.model_type == "qwen2",
        )


SHAPES: dict[str, ModelShape] = {
    "qwen2.5-math-7b": ModelShape(3584, 28, 18944, 28, 4, 128, 152064, tied=False),
    "qwen2.5-math-1.5b": ModelShape(1536, 28, 8960, 12, 2, 128, 151936, tied=True),
    "qwen2.5-1.5b-instruct": ModelShape(1536, 28, 8960, 12, 2, 128, 151936, tied=True),
    "smollm2": ModelShape(576, 30, 1536, 9, 3, 64, 49152, tied=True, biases=False),
}
"""Of the named models, from their published configurations, so that nothing need be fetched to warn of a run."""


def shape_of(model: ModelConfig) -> ModelShape | None:
    """The shape of a named model or of a model folder; None where only a download would tell."""
    if model.name.lower() in SHAPES:
        return SHAPES[model.name.lower()]
    if (Path(model.name) / "config.json").is_file():
        from transformers import AutoConfig

        return ModelShape.of_config(AutoConfig.from_pretrained(model.name, local_files_only=True))
    return None
