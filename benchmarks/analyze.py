"""``kaestat analyze`` from the shell to the last line, in a fresh interpreter with everything it does by default.

The logs are a real run of 33,261 visits, where the environment variable ``KAESTAT_DATA`` names the folder that holds
it, and a made one of 20 million rows in Parquet: prompts in a new order at every pass, whose logits rise from pass to
pass. Memory is the highest resident set of the process.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.rows import Row
from benchmarks.timing import estimate

CODE = ("kaestat/logs", "kaestat/report", "kaestat/baselines")
CLAIM = "kaestat analyze takes at most 5 s on a real run, and 5 minutes and 2.5 GB on a log of 20 million rows"
REAL_FILE, GROUP = "acc_step_500_dev.json", 8
SIZES = {"full": (20_000, 200, 125, 3), "tiny": (20, 10, 5, 1)}  # prompts, prompts of a step, passes, repetitions


def run(size: str = "full") -> list[Row]:
    """Seconds and memory of the command on both logs."""
    n_prompts, n_at_once, n_passes, repetitions = SIZES[size]
    folder = os.environ.get("KAESTAT_DATA")
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "made.parquet"
        _made_log(n_prompts, n_at_once, n_passes).to_parquet(path)
        rows = _case(f"made log: {n_prompts * n_passes * GROUP:,} rows", path, 1, 300.0, 2500.0)
    if folder is None:
        missing = "The real run was not measured: KAESTAT_DATA names no folder."
        return [*rows, Row("real run", "kaestat analyze", "s", None, at_most=5.0, note=missing)]
    return _case("real run", Path(folder) / REAL_FILE, repetitions, 5.0, None) + rows


def _case(case: str, path: Path, repetitions: int, most_seconds: float, most_mb: float | None) -> list[Row]:
    seconds, memory = np.transpose([_command(path) for _ in range(repetitions)])
    return [
        Row(case, "kaestat analyze", "s", estimate(seconds), at_most=most_seconds),
        Row(case, "highest memory", "MB", estimate(memory), at_most=most_mb),
    ]


def _command(path: Path) -> tuple[float, float]:
    """Seconds, and MB of the highest resident set."""
    program = "from kaestat.report.cli import main; main()"  # what the installed `kaestat` runs
    # Python keeps compiled modules as it has those of an installed package.
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-c", program, "analyze", str(path)], stdout=said, stderr=said, env=compiled
        )
        _, process.returncode, used = os.wait4(process.pid, 0)
        if process.returncode:
            said.seek(0)
            raise RuntimeError(f"kaestat analyze failed: {said.read().decode()}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6


def _made_log(n_prompts: int, n_at_once: int, n_passes: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    prompt = np.concatenate([rng.permutation(n_prompts) for _ in range(n_passes)]).astype(np.int32)
    step = (np.arange(len(prompt)) // n_at_once).astype(np.int32)
    value = 1 / (1 + np.exp(-rng.normal(0, 1.5, n_prompts)[prompt] - 2 * step / step.max()))
    reward = (rng.random((len(prompt), GROUP)) < value[:, None]).astype(np.float32)
    return pd.DataFrame({"prompt": np.repeat(prompt, GROUP), "step": np.repeat(step, GROUP), "reward": reward.ravel()})
