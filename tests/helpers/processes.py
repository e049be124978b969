"""A module run in processes of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TWO = ("torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m")


def run_module(*arguments, timeout: float = 300, environment: dict[str, str] | None = None) -> None:
    """``python -m`` with these arguments and one thread; an error, with what it printed, if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        env=os.environ | (environment or {}) | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
