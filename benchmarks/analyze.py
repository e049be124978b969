"""``kaestat analyze`` from the shell to the last line, and where its time goes.

The log is the real run where the environment variable ``KAESTAT_DATA`` names the folder that holds it, and a run
simulated with its character in any case. Timed: the command in a fresh interpreter with everything it does by
default; and, in this process, reading the file, the risk of every method that needs rewards alone, and 1,000
bootstrap draws over prompts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.report import show
from benchmarks.rows import Row
from benchmarks.timing import estimate, interleaved
from kaestat import make_baseline, methods, read_log, value_risk
from kaestat.bootstrap import cluster_bootstrap
from kaestat.datasets import simulated_run

CLAIM = "kaestat analyze takes less than 5 s on a real run, all methods and 1,000 bootstrap draws"
SIZES = {"full": (629, 56, 3), "tiny": (4, 5, 1)}  # the simulated run is as large as the real file
DRAWS = 1000
REAL_FILE = "acc_step_500_dev.json"


def run(size: str = "full") -> list[Row]:
    """Seconds of the command and of its parts, on the simulated run and on the real one."""
    n_prompts, n_epochs, repetitions = SIZES[size]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "simulated.json"
        _write_accuracies(path, n_prompts, n_epochs)
        rows = _case("simulated run", path, repetitions)
        folder = os.environ.get("KAESTAT_DATA")
        if folder is None:
            missing = "The real run was not measured: KAESTAT_DATA names no folder."
            return [*rows, Row("real run", "kaestat analyze, end to end", "s", None, at_most=5.0, note=missing)]
        return rows + _case("real run", Path(folder) / REAL_FILE, repetitions)


def _case(name: str, path: Path, repetitions: int) -> list[Row]:
    log = read_log(path)
    baselines = {method: make_baseline(method) for method in methods()}
    served = [name for name, made in baselines.items() if made.missing_input is None and not made.needs_weights]
    contributions = np.random.default_rng(0).random((len(log.prompts), len(served)))
    seconds = interleaved(
        {
            "kaestat analyze, end to end": lambda: _command(path),
            "of it: start and import": lambda: subprocess.run(
                [sys.executable, "-c", "import kaestat.report.commands"], check=True
            ),
            "of it: read": lambda: read_log(path),
            f"of it: risk of {len(served)} methods": lambda: value_risk(read_log(path), served, n_boot=0),
            f"of it: {DRAWS:,} draws": lambda: cluster_bootstrap(contributions, n_boot=DRAWS, seed=0),
        },
        repetitions=repetitions,
    )
    case = f"{name}: {len(log.prompts):,} prompts, {log.n_visits:,} visits"
    return [
        Row(case, quantity, "s", estimate(sample), at_most=5.0 if "end to end" in quantity else None)
        for quantity, sample in seconds.items()
    ]


def _command(path: Path) -> None:
    program = "from kaestat.report.cli import main; main()"  # what the installed `kaestat` runs
    finished = subprocess.run([sys.executable, "-c", program, "analyze", str(path)], capture_output=True, text=True)
    if finished.returncode or "kae_eb" not in finished.stdout:
        raise RuntimeError(f"kaestat analyze failed: {finished.stderr}")


def _write_accuracies(path: Path, n_prompts: int, n_epochs: int) -> None:
    """The simulated run in the real file's format: a sequence of group accuracies per prompt."""
    frame = simulated_run(n_prompts=n_prompts, n_epochs=n_epochs).log.frame
    accuracy = frame.groupby(["prompt", "step"])["reward"].mean()
    sequences = {str(prompt): visits.tolist() for prompt, visits in accuracy.groupby(level="prompt")}
    path.write_text(json.dumps(sequences))


if __name__ == "__main__":
    show(CLAIM, run())
