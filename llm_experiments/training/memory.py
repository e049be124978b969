"""The memory that a training run takes for certain, counted from its weights before anything is loaded."""

import warnings

from llm_experiments.training.config import RunConfig
from llm_experiments.training.shapes import BYTES, GIB, ModelShape

TRAINED = 4 * 4  # bytes of a trained weight: itself, its gradient and AdamW's two moments, in float32
GPU_GIB = 80.0  # of a GPU of the H100's kind, on which plans count


def device_gib(
    config: RunConfig, shape: ModelShape, *, gpus: int, sharded: bool, memory_gib: float = GPU_GIB
) -> tuple[float, float]:
    """GiB of each device for the weights with what trains them, and for vLLM.

    What a backward pass keeps of the layers comes on top.

    sharded: Whether the GPUs share weights, gradients and moments (FSDP), or each holds all of them.
    memory_gib: Of the device, a share of which is vLLM's.
    """
    width = BYTES[config.model.dtype]
    copies = width if width < BYTES["float32"] and not sharded else 0  # of the weights, in the type of the passes
    held = (TRAINED + copies) * shape.parameters
    sampler = memory_gib * config.vllm_gpu_share if config.sampling.engine == "vllm" else 0.0
    return held / (gpus if sharded else 1) / GIB, sampler


def check_memory(config: RunConfig, shape: ModelShape, *, gpus: int, sharded: bool, memory_gib: float) -> None:
    """Warn of a run that does not fit.

    Warns
    -----
    UserWarning
        The message says what the run needs, and what would make it smaller.
    """
    held, sampler = device_gib(config, shape, gpus=gpus, sharded=sharded, memory_gib=memory_gib)
    if held + sampler > memory_gib:
        warnings.warn(
            f"model {config.model.name}: weights, gradients and the optimizer's moments take {held:.0f} GiB and vLLM "
            f"{sampler:.0f} GiB of each device, which has {memory_gib:.0f}, and a backward pass needs more. The run "
            "goes on; if it ends for want of memory, lower vllm_gpu_share, or shard over more GPUs (accelerate launch "
            "with FSDP).",
            stacklevel=2,
        )
