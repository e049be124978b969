"""Where a number comes from: versions, machine, commit, seed."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from simulations.harness.study import code_digest

PACKAGES = ("kaestat", "numpy", "scipy", "pandas", "joblib", "threadpoolctl")


def provenance(*, seed: int) -> dict[str, Any]:
    """Facts about this computation, as plain data; no paths and no host name."""
    return {
        "seed": seed,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "code": code_digest(),
        "python": sys.version.split()[0],
        "packages": {name: _version(name) for name in PACKAGES},
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The checked-out commit, marked if files differ from it; None outside a checkout."""
    here = Path(__file__).parent
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
        changed = subprocess.run(["git", "status", "--porcelain"], cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.stdout.strip() + (" (with uncommitted changes)" if changed.stdout.strip() else "")
