"""How much memory and time a training run takes on TRL, and memory on verl, before anything is loaded.

Memory is counted: weights, AdamW's state, what a backward pass keeps of each layer, the output layer's tiles. Time is
counted too, in multiplications, bytes that have to be moved, and layers that have to be called; what a machine reaches
of its peaks are a few numbers (`Accelerator`). `KNOWN_ERROR` says how far the estimates are from measurements.
"""

import warnings
from dataclasses import dataclass

from llm_experiments.training.config import RunConfig
from llm_experiments.training.shapes import BYTES, GIB, ModelShape, adapter_parameters

TILE = 4096, 32768  # tokens and vocabulary of a piece of TRL's output layer
# Copies of a micro-batch's logits that verl holds at once in a backward pass over padded completions: its own functions
# took 5.4 to 6.1 on a CPU (2 x 256 and 2 x 512 tokens, a vocabulary of 152,064, bfloat16).
LOGITS = 6
VLLM_AT_ONCE = 256  # sequences that vLLM decodes at once, where its memory holds them
KNOWN_ERROR = (
    "Of sizes that could be measured (TRL on a CPU, models of 5 to 135 million parameters) such estimates were "
    "0.90 to 0.97 of the memory and 0.84 to 1.19 of the time of a step. They have not been held against vLLM, LoRA, "
    "sharded weights or a large GPU at work: take hours there as an order of magnitude."
)
TRAFFIC = 3  # times that what a layer keeps is moved: written, read again, and its gradient written


@dataclass(frozen=True)
class Accelerator:
    """A machine that trains. The default is a GPU of the H100's kind, whose shares are assumed.

    flops, bandwidth: Peaks: floating-point operations in the passes' type, and bytes moved, per second.
    training_share, generation_share: Shares of ``flops`` that forward and backward passes reach, and products with a
        decoding batch.
    bandwidth_share: Share of ``bandwidth``.
    layer_seconds: The least that a call of a layer takes, forward or backward, however small it is: Python calls its
        pieces one by one. The default is of a stack of SmolLM2-135M on an H100, one measurement. vLLM's graphs do
        without.
    """

    memory_gib: float = 80.0
    flops: float = 9.9e14
    bandwidth: float = 3.35e12
    training_share: float = 0.35
    generation_share: float = 0.35
    bandwidth_share: float = 0.6
    layer_seconds: float = 1.1e-3


@dataclass(frozen=True)
class Estimate:
    """What a run takes.

    passes_gib, optimizer_gib, sampling_gib: On each device in the three parts of a step: weights and the optimizer's
        state, and what else each part holds. ``sampling_gib`` is of transformers' sampler, 0 with vLLM.
    generation_gib: vLLM's share of each GPU, weights and cached keys and values; 0 without vLLM.
    generation_s, passes_s, optimizer_s: Seconds of a training step.
    """

    passes_gib: float
    optimizer_gib: float
    sampling_gib: float
    generation_gib: float
    generation_s: float
    passes_s: float
    optimizer_s: float
    steps: int

    @property
    def training_gib(self) -> float:
        """Of each device without vLLM's share: the part that takes most."""
        return max(self.passes_gib, self.optimizer_gib, self.sampling_gib)

    @property
    def total_gib(self) -> float:
        """Memory of each device."""
        return self.training_gib + self.generation_gib

    @property
    def hours(self) -> float:
        """Wall time of all steps; tests, checkpoints and the grading of answers are not in it."""
        return self.steps * (self.generation_s + self.passes_s + self.optimizer_s) / 3600


def estimate(
    config: RunConfig,
    shape: ModelShape,
    *,
    gpus: int,
    sharded: bool,
    prompt_tokens: int = 256,
    accelerator: Accelerator | None = None,
    whole_logits: bool = False,
) -> Estimate:
    """Memory and time of a run.

    sharded: Whether weights, gradients and optimizer states are spread over the GPUs (FSDP, ZeRO-3) or held by each.
    prompt_tokens: Length of a prompt.
    accelerator: 80 GB of the H100's kind by default.
    whole_logits: Whether the logits of a micro-batch are held whole, as on verl without flash-attention, and not piece
        by piece.
    """
    accelerator = accelerator or Accelerator()
    run = _Run(config, shape, gpus, sharded, prompt_tokens, accelerator, whole_logits)
    vllm = accelerator.memory_gib * config.vllm_gpu_share if run.vllm else 0.0
    return Estimate(
        passes_gib=run.passes_bytes() / GIB,
        optimizer_gib=(run.state + run.gradients) / GIB,
        sampling_gib=0.0 if run.vllm else run.sampling_bytes() / GIB,
        generation_gib=vllm,
        generation_s=run.generation_seconds(),
        passes_s=run.passes_seconds(),
        optimizer_s=run.optimizer_seconds(),
        steps=config.updates.steps,
    )


@dataclass(frozen=True)
class _Run:
    """The counts behind an estimate, in bytes and seconds of one device."""

    config: RunConfig
    shape: ModelShape
    gpus: int
    sharded: bool
    prompt: int
    on: Accelerator
    whole_logits: bool

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
        """The output layer, TRL's piece by piece; its gradient is summed in float32."""
        if self.whole_logits:
            logits = LOGITS * self.width * self.micro_tokens * self.shape.vocabulary
        else:
            tile = min(self.micro_tokens, TILE[0]) * min(self.shape.vocabulary, TILE[1])
            logits = tile * self.width
        own = 0 if self.config.updates.lora_rank is not None else 4 * self.shape.head
        return logits + own + 4 * self.micro_tokens * self.shape.hidden

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

    def passes_seconds(self) -> float:
        sizes, shape = self.config.updates, self.shape
        tokens = self.completions * self.longest
        # Forward 2, backward 4; checkpoints repeat the forward pass, and so do earlier log-probabilities where TRL
        # wants them and score norms. The output layer is repeated in any case.
        forwards = (
            1
            + sizes.gradient_checkpointing
            + (self.vllm or sizes.updates_per_step > 1)
            + (self.config.weights not in ("none", "length"))
        )
        backwards = 1 + (self.config.weights in ("exact", "adam"))
        per_token = 2 * forwards + 4 * backwards
        per_token = per_token * (shape.parameters - (0 if shape.tied else shape.head)) + 2 * shape.head
        per_token += (forwards + 2 * backwards) * 4 * self.longest * shape.wide * shape.layers  # attention
        moved = TRAFFIC * self.layer_bytes() * shape.layers * tokens
        calls = (forwards + 2 * backwards) * shape.layers * self.completions / sizes.micro_batch
        return max(
            per_token * tokens / (self.on.flops * self.on.training_share)
            + moved / (self.on.bandwidth * self.on.bandwidth_share),
            calls * self.on.layer_seconds,
        )

    def generation_seconds(self) -> float:
        shape, longest = self.shape, self.config.sampling.max_new_tokens
        at_once, lengths, copies = self.completions, float(longest), 3  # transformers copies its cache at every token
        if self.vllm:  # a mean length of half of the longest; transformers' sampler waits for the longest
            lengths, copies = longest / 2, 1
            room = self.on.memory_gib * GIB * self.config.vllm_gpu_share - self.width * shape.parameters
            at_once = min(self.completions, VLLM_AT_ONCE, max(room / (self.cache * (self.prompt + lengths)), 1.0))
        rounds = self.completions * lengths / at_once
        moved = self.width * shape.parameters + copies * at_once * self.cache * (self.prompt + lengths / 2)
        each = max(
            2 * shape.parameters * at_once / (self.on.flops * self.on.generation_share)
            + moved / (self.on.bandwidth * self.on.bandwidth_share),
            0.0 if self.vllm else shape.layers * self.on.layer_seconds,
        )
        prefill = 2 * shape.parameters * self.completions * self.prompt / (self.on.flops * self.on.training_share)
        return rounds * each + prefill

    def optimizer_seconds(self) -> float:
        """Weights, gradients and moments are read, all but the gradients written."""
        updates = self.config.updates.updates_per_step
        return updates * 28.0 * self.trained / self.parts / (self.on.bandwidth * self.on.bandwidth_share)


def check_batches(config: RunConfig, processes: int) -> None:
    """Refuse sizes that do not divide among processes.

    Raises ValueError if an update's completions are not a multiple of what the processes take at once.
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
    found = estimate(config, shape, gpus=gpus, sharded=sharded, accelerator=Accelerator(memory_gib=memory_gib))
    if found.total_gib > memory_gib:
        warnings.warn(
            f"model {config.model.name}: by an estimate, training takes about {found.training_gib:.0f} GiB and "
            f"generation {found.generation_gib:.0f} GiB on each device, which has {memory_gib:.0f}. The run goes on; "
            "if it ends for want of memory, lower updates.micro_batch, turn on updates.gradient_checkpointing, set "
            f"updates.lora_rank, or shard over more GPUs (accelerate launch with FSDP). {KNOWN_ERROR}",
            stacklevel=2,
        )
