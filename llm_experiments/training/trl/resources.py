"""How much memory and time a training run takes, before anything is loaded.

Memory is counted from the model's shape, for TRL with plain data parallelism or full sharding. Parameters are exact;
the rest has not been compared with a measurement. Hours rest on assumed shares of a GPU's peak (`Accelerator`), and on
completions half as long as they may be: take them as an order of magnitude.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

from llm_experiments.config import ModelConfig
from llm_experiments.training.config import RunConfig

GIB = 2**30


@dataclass(frozen=True)
class ModelShape:
    """What memory and time hang on, for models built as Llama and Qwen2 are.

    Attributes
    ----------
    hidden, layers, feed_forward, heads, key_value_heads, head_dim, vocabulary : int
    tied : bool
        Whether input and output embeddings are one matrix.
    biases : bool
        Whether query, key and value projections have biases (Qwen2).
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
        wide, narrow = self.heads * self.head_dim, self.key_value_heads * self.head_dim
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


@dataclass(frozen=True)
class Accelerator:
    """A kind of GPU.

    Attributes
    ----------
    memory_gib : float
    flops : float
        Peak in bfloat16, per second.
    training_share, generation_share : float
        Shares of the peak that forward and backward passes, and batched generation, are assumed to reach.
    """

    memory_gib: float = 80.0
    flops: float = 9.9e14
    training_share: float = 0.35
    generation_share: float = 0.06


@dataclass(frozen=True)
class Estimate:
    """What a run takes.

    Attributes
    ----------
    training_gib : float
        Weights, gradients, optimizer and activations on each GPU.
    generation_gib : float
        vLLM's share of each GPU, weights and cached keys and values; 0 without vLLM.
    hours : float
        Wall time of all steps, tests aside.
    """

    training_gib: float
    generation_gib: float
    hours: float

    @property
    def total_gib(self) -> float:
        """Memory of each GPU."""
        return self.training_gib + self.generation_gib


def estimate(
    config: RunConfig,
    shape: ModelShape,
    *,
    gpus: int,
    sharded: bool,
    prompt_tokens: int = 256,
    accelerator: Accelerator | None = None,
) -> Estimate:
    """Memory and time of a run.

    Parameters
    ----------
    config : RunConfig
    shape : ModelShape
    gpus : int
    sharded : bool
        Whether weights, gradients and optimizer states are spread over the GPUs (FSDP, ZeRO-3) or held by each.
    prompt_tokens : int
        Length of a prompt.
    accelerator : Accelerator, optional
        80 GB of the H100's kind by default.
    """
    accelerator = accelerator or Accelerator()
    sizes, longest = config.updates, prompt_tokens + config.sampling.max_new_tokens
    parts = gpus if sharded else 1
    tokens = sizes.micro_batch * longest
    # Per layer and token, in bfloat16: with checkpoints the layer's input alone, else about 34 hidden widths
    # (Korthikanti et al., 2022, without attention scores); one layer is always held whole.
    whole = 34 * shape.hidden
    kept = shape.layers * (2 * shape.hidden if sizes.gradient_checkpointing else whole)
    logits = 2 * 4 * min(tokens, 4096) * shape.vocabulary  # TRL's fused head goes chunk by chunk
    activations = tokens * (kept + whole) + logits
    weights = _state_bytes(config, shape) / parts
    generation = accelerator.memory_gib * config.vllm_gpu_share if config.sampling.engine == "vllm" else 0.0
    return Estimate((weights + activations) / GIB, generation, _hours(config, shape, gpus, prompt_tokens, accelerator))


def check_memory(config: RunConfig, shape: ModelShape, *, gpus: int, sharded: bool, memory_gib: float) -> None:
    """Warn of a run that by the estimate does not fit: the estimate may be wrong, so the run goes on.

    Warns
    -----
    UserWarning
        The message says what the run needs, and what would make it smaller.
    """
    found = estimate(config, shape, gpus=gpus, sharded=sharded, accelerator=Accelerator(memory_gib=memory_gib))
    if found.total_gib > memory_gib:
        warnings.warn(
            f"model {config.model.name}: by an estimate, training takes about {found.training_gib:.0f} GiB and "
            f"generation {found.generation_gib:.0f} GiB on each device, which has {memory_gib:.0f}. The run goes on; "
            "if it ends for want of memory, lower updates.micro_batch, turn on updates.gradient_checkpointing, set "
            "updates.lora_rank, or shard over more GPUs (accelerate launch with FSDP).",
            stacklevel=2,
        )


def shape_of(model: ModelConfig) -> ModelShape | None:
    """The shape of a named model or of a model folder; None where only a download would tell."""
    if model.name.lower() in SHAPES:
        return SHAPES[model.name.lower()]
    if (Path(model.name) / "config.json").is_file():
        from transformers import AutoConfig

        return ModelShape.of_config(AutoConfig.from_pretrained(model.name, local_files_only=True))
    return None


def _state_bytes(config: RunConfig, shape: ModelShape) -> float:
    """Weights, gradients and AdamW's two moments."""
    rank = config.updates.lora_rank
    if rank is None:
        return 16.0 * shape.parameters  # all in float32
    half = 2.0 if config.model.dtype == "bfloat16" else 4.0
    return half * shape.parameters + 16.0 * adapter_parameters(shape, rank)


def adapter_parameters(shape: ModelShape, rank: int) -> int:
    """Number of weights in low-rank adapters of all linear layers."""
    wide, narrow = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    ends = (2 * (shape.hidden + wide)) + 2 * (shape.hidden + narrow) + 3 * (shape.hidden + shape.feed_forward)
    return rank * ends * shape.layers


def _hours(config: RunConfig, shape: ModelShape, gpus: int, prompt_tokens: int, accelerator: Accelerator) -> float:
    sizes = config.updates
    completions = sizes.steps * sizes.prompts * sizes.group_size
    generated = completions * config.sampling.max_new_tokens / 2
    seen = completions * prompt_tokens + generated
    # Forward 2, backward 4; checkpoints repeat the forward pass, and so do the sampling policy's log-probabilities.
    per_token = (6 + 2 * sizes.gradient_checkpointing + 2) * shape.parameters
    training = per_token * seen / accelerator.training_share
    generation = 2 * shape.parameters * (generated + completions * prompt_tokens) / accelerator.generation_share
    return (training + generation) / (accelerator.flops * gpus) / 3600
