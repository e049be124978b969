"""Where a number comes from: versions, machine, commit, seed."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kaestat.provenance import checked_out_commit, installed_version
from simulations.harness.study import code_digest

PACKAGES = ("kaestat", "numpy", "scipy", "pandas", "joblib", "threadpoolctl")


def provenance(*, seed: int) -> dict[str, Any]:
    """Facts about this computation, as plain data; no paths and no host name."""
    return {
        "seed": seed,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": checked_out_commit(Path(__file__).parent),
        "code": code_digest(),
        "python": sys.version.split()[0],
        "packages": {name: installed_version(name) for name in PACKAGES},
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
    }
