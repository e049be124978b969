"""Where a number comes from: versions, machine, commit, seed."""

from pathlib import Path
from typing import Any

from kaestat.core.provenance import environment, time_and_commit
from simulations.harness.study import code_digest

PACKAGES = ("kaestat", "numpy", "scipy", "pandas", "joblib", "threadpoolctl")


def provenance(*, seed: int) -> dict[str, Any]:
    """Facts about this computation, as plain data; no paths and no host name."""
    return {"seed": seed, **time_and_commit(Path(__file__).parent), "code": code_digest(), **environment(PACKAGES)}
