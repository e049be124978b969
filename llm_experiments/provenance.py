"""Where a result comes from: configuration, versions, machine, commit."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from kaestat.core.provenance import environment, time_and_commit

PACKAGES = ("kaestat", "numpy", "pandas", "torch", "transformers", "tokenizers", "vllm", "math-verify")


def provenance(config: BaseModel) -> dict[str, Any]:
    """Facts about this computation, as plain data; no host name."""
    found = {
        "config": config.model_dump(mode="json"),
        **time_and_commit(Path(__file__).parent),
        **environment(PACKAGES),
    }
    found["machine"] |= _device()
    return found


def _device() -> dict[str, str]:
    import torch

    return {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
