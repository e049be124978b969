"""A command that goes on where it was killed; by its own name also in environments whose packages bring a ``tests``."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path


def run_killed(
    command: Sequence[str], folder: Path, signs: Sequence[str], *, patience: float, **options
) -> tuple[str, list[dict[Path, int]]]:
    """What a command said in its last run, after it was killed, with all its processes, at each sign.

    folder: Where it writes.
    signs: Patterns of files below the folder. A run is killed with SIGKILL once there is a file of its sign.
    patience: Seconds until then, and until the end of the last run.
    **options: Of `subprocess.Popen`.
    Returns: Also all files that were there at each kill, with the times of their last writing in nanoseconds.
    """
    found = []
    for sign in signs:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, process_group=0, **options)
        deadline = time.monotonic() + patience
        while not any(path.match(sign) for path in _below(folder)):
            assert process.poll() is None, f"ended with {process.returncode} before there was {sign}"
            assert time.monotonic() < deadline, f"no {sign} after {patience} s"
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        found.append({path: path.stat().st_mtime_ns for path in _below(folder)})
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0, **options)
    try:
        said, _ = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, said
    return said, found


def _below(folder: Path) -> set[Path]:
    """All files; folders may go while they are listed."""
    return {Path(place) / name for place, _, names in os.walk(folder) for name in names}
