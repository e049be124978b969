"""Where a result comes from: configuration, versions, machine, commit."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from kaestat.provenance import checked_out_commit, installed_version

PACKAGES = ("kaestat", "numpy", "pandas", "torch", "transformers", "tokenizers", "vllm", "math-verify", "reasoning-gym")


def provenance(config: BaseModel) -> dict[str, Any]:
    """Facts about this computation, as plain data; no host name."""
    return {
        "config": config.model_dump(mode="json"),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": checked_out_commit(Path(__file__).parent),
        "python": sys.version.split()[0],
        "packages": {name: installed_version(name) for name in PACKAGES},
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()} | _device(),
    }


def _device() -> dict[str, str]:
    import torch

    return {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
