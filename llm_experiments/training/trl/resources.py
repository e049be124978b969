"""How much memory a training run takes on TRL, before anything is loaded.

Memory is counted: weights, AdamW's state, what a backward pass keeps of each layer, the output layer's tiles.
`KNOWN_ERROR` says how far the count is from measurements.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from llm_experiments.training.config import RunConfig
from llm_experiments.training.shapes import GIB, ModelShape, adapter_parameters

BYTES = {"float32": 4, "bfloat16": 2}
TILE = 4096, 32768  # tokens and vocabulary of a piece of TRL's output layer
GPU_GIB = 80.0
KNOWN_ERROR = (
    "Of sizes that were measured (TRL on a CPU, models of 5 to 135 million parameters) such estimates were 0.90 to "
    "0.97 of the memory. They have not been held against vLLM, LoRA, sharded weights or a large GPU at work."
)


@dataclass(frozen=True)
class Estimate:
    """Memory that a run takes on each device, in GiB.

    Attributes
    ----------
    passes_gib, optimizer_gib, sampling_gib : float
        In the three parts of a step: weights and the optimizer's state with what each part holds besides.
        ``sampling_gib`` is of transformers' sampler, 0 with vLLM.
    generation_gib : float
        vLLM's share of each GPU, weights and cached keys and values; 0 without vLLM.
    """

    passes_gib: float
    optimizer_gib: float
    sampling_gib: float
    generation_gib: float

    @property
    def training_gib(self) -> float:
        """Without vLLM's share: the part that takes most."""
        return max(self.passes_gib, self.optimizer_gib, self.sampling_gib)

    @property
    def total_gib(self) -> float:
        """Memory of each device."""
        return self.training_gib + self.generation_gib


def estimate(
    config: RunConfig,
    shape: ModelShape,
    *,
    gpus: int,
    sharded: bool,
    prompt_tokens: int = 256,
    memory_gib: float = GPU_GIB,
) -> Estimate:
    """Memory of a run.

    Parameters
    ----------
    config : RunConfig
    shape : ModelShape
    gpus : int
    sharded : bool
        Whether weights, gradients and optimizer states are spread over the GPUs (FSDP, ZeRO-3) or held by each.
    prompt_tokens : int
        Length of a prompt.
    memory_gib : float
        Of each device; vLLM takes a share of it.
    """
    run = _Run(config, shape, gpus, sharded, prompt_tokens)
    return Estimate(
        passes_gib=run.passes_bytes() / GIB,
        optimizer_gib=(run.state + run.gradients) / GIB,
        sampling_gib=0.0 if run.vllm else run.sampling_bytes() / GIB,
        generation_gib=memory_gib * config.vllm_gpu_share if run.vllm else 0.0,
    )


@dataclass(frozen=True)
class _Run:
    """The counts behind an estimate, in bytes of one device."""

    config: RunConfig
    shape: ModelShape
    gpus: int
    sharded: bool
    prompt: int

    @property
    def vllm(self) -> bool:
        return self.config.sampling.engine == "vllm"

    @property
    def width(self) -> int:
        """Bytes of a number in the passes."""
        return BYTES[self.config.model.dtype]

    @property
    def longest(self) -> int:
        return self.prompt + self.config.sampling.max_new_tokens

    @property
    def trained(self) -> int:
        rank = self.config.updates.lora_rank
        return self.shape.parameters if rank is None else adapter_parameters(self.shape, rank)

    @property
    def parts(self) -> int:
        return self.gpus if self.sharded else 1

    @property
    def completions(self) -> float:
        """Of a step, on each device."""
        return self.config.updates.prompts * self.config.updates.group_size / self.gpus

    @property
    def micro_tokens(self) -> int:
        return self.config.updates.micro_batch * self.longest

    @property
    def state(self) -> float:
        """Weights and AdamW's two moments, in float32; weights below adapters as the configuration has them."""
        below = 0.0 if self.config.updates.lora_rank is None else self.width * self.shape.parameters
        return (below + 12.0 * self.trained) / self.parts

    @property
    def gradients(self) -> float:
        return 4.0 * self.trained / self.parts

    @property
    def layer_weights(self) -> float:
        return (self.shape.parameters - self.shape.head * (1 if self.shape.tied else 2)) / self.shape.layers

    def layer_bytes(self) -> float:
        """What a backward pass needs of a layer, for a token.

        Two normalisations keep their input, the normalised input and their output in float32, and the output once more
        in the passes' type where that is another; attention keeps queries, keys and values (repeated for all heads) and
        its output; the feed-forward part the gate, its activation, what it multiplies, and the product.
        """
        shape = self.shape
        normal = 2 * 3 * 4 * shape.hidden + (2 * self.width * shape.hidden if self.width != 4 else 0)
        return normal + self.width * (4 * shape.wide + 4 * shape.feed_forward)

    def kept_bytes(self) -> float:
        """What a micro-batch's forward pass leaves for the backward one."""
        layers, whole = self.shape.layers, self.layer_bytes()
        each = layers * 4 * self.shape.hidden + whole if self.config.updates.gradient_checkpointing else layers * whole
        return self.micro_tokens * each

    def cast_bytes(self) -> float:
        """Weights of the layers in the passes' type: copies of all while a pass lasts, or of two gathered layers."""
        if self.config.updates.lora_rank is not None and not self.sharded:
            return 0.0
        if self.sharded:
            return self.width * (2 * self.layer_weights + self.shape.head)
        return 0.0 if self.width == 4 else self.width * self.layer_weights * self.shape.layers

    def head_bytes(self) -> float:
        """TRL's output layer, piece by piece; its gradient is summed in float32."""
        tile = min(self.micro_tokens, TILE[0]) * min(self.shape.vocabulary, TILE[1])
        own = 0 if self.config.updates.lora_rank is not None else 4 * self.shape.head
        return tile * self.width + own + 4 * self.micro_tokens * self.shape.hidden

    def passes_bytes(self) -> float:
        sizes = self.config.updates
        accumulates = sizes.update_prompts * sizes.group_size > sizes.micro_batch * self.gpus
        held = self.state + self.cast_bytes()
        beginning = self.kept_bytes() + self.head_bytes()  # of the backward pass
        if accumulates:
            return held + self.gradients + beginning
        return held + max(beginning, self.gradients)

    @property
    def cache(self) -> float:
        """Bytes of a token's keys and values."""
        return 2.0 * self.shape.layers * self.shape.narrow * self.width

    def sampling_bytes(self) -> float:
        """transformers' sampler, which holds all completions of a step at once, and four copies of their logits."""
        logits = 4 * 4.0 * self.shape.vocabulary
        return self.state + self.completions * (self.cache * self.longest + logits)


def check_batches(config: RunConfig, processes: int) -> None:
    """Refuse sizes that do not divide among processes.

    Raises
    ------
    ValueError
        If an update's completions are no multiple of what the processes take at once.
    """
    sizes = config.updates
    per_update = sizes.update_prompts * sizes.group_size
    if per_update % (sizes.micro_batch * processes):
        raise ValueError(
            f"an update's {per_update} completions must be a multiple of micro_batch = {sizes.micro_batch} times "
            f"{processes} processes."
        )


def check_memory(config: RunConfig, shape: ModelShape, *, gpus: int, sharded: bool, memory_gib: float) -> None:
    """Warn of a run that by the estimate does not fit: the estimate may be wrong, so the run goes on.

    Warns
    -----
    UserWarning
        The message says what the run needs, and what would make it smaller.
    """
    found = estimate(config, shape, gpus=gpus, sharded=sharded, memory_gib=memory_gib)
    if found.total_gib > memory_gib:
        warnings.warn(
            f"model {config.model.name}: by an estimate, training takes about {found.training_gib:.0f} GiB and "
            f"generation {found.generation_gib:.0f} GiB on each device, which has {memory_gib:.0f}. The run goes on; "
            "if it ends for want of memory, lower updates.micro_batch, turn on updates.gradient_checkpointing, set "
            f"updates.lora_rank, or shard over more GPUs (accelerate launch with FSDP). {KNOWN_ERROR}",
            stacklevel=2,
        )
