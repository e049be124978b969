"""``kaestat analyze`` from the shell to the last line, and where its time goes.

The log is the real run where the environment variable ``KAESTAT_DATA`` names the folder that holds it, and a run
simulated with its character in any case. Timed: the command in a fresh interpreter with everything it does by
default; and, in this process, reading the file, the risk of every method that needs rewards alone, and 1,000
bootstrap draws over prompts.

Methods that pool prompts need the log without each of five groups of prompts too. Their replays together are compared
with replays of the six logs one after the other, and the tuned candidates' together with one after the other: on the
real run, on one whose prompts return every few steps, and on one whose prompts are all there at every step.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.rows import Row
from benchmarks.timing import estimate, interleaved, ratio
from kaestat import RewardLog, make_baseline, methods, read_log, value_risk
from kaestat.core.bootstrap import cluster_bootstrap
from kaestat.datasets import simulated_run
from kaestat.logs.jackknife import REPLAYS, jackknife_groups
from kaestat.logs.risk import prompt_risks, risk_baseline, visit_risk
from kaestat.logs.tuning import candidates, wide_grid
from kaestat.report.analysis import TUNED_METHODS, default_methods

CODE = ("kaestat/logs", "kaestat/report", "kaestat/baselines")
CLAIM = (
    "kaestat analyze takes less than 2 s on a real run, all methods and 1,000 bootstrap draws; replaying a log with "
    "and without groups of prompts at once is at least twice as fast as one after the other"
)
AT_MOST = 2.0  # seconds, on the real run
SIZES = {"full": (629, 56, 3), "tiny": (4, 5, 1)}  # the simulated run is as large as the real file
STEP_RUNS = {  # prompts, prompts of a step, steps
    "full": {"prompts return": (300, 64, 38), "all prompts at every step": (64, 64, 300)},
    "tiny": {"prompts return": (12, 6, 6), "all prompts at every step": (4, 4, 5)},
}
GROUP = 8
DRAWS = 1000
REAL_FILE = "acc_step_500_dev.json"


def run(size: str = "full") -> list[Row]:
    """Seconds of the command and of its parts, on the simulated run and on the real one."""
    n_prompts, n_epochs, repetitions = SIZES[size]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "simulated.json"
        _write_accuracies(path, n_prompts, n_epochs)
        rows = _case("simulated run", path, repetitions)
        for name, shape in STEP_RUNS[size].items():
            rows += _replays(name, _steps_log(*shape), repetitions)
        folder = os.environ.get("KAESTAT_DATA")
        if folder is None:
            missing = "The real run was not measured: KAESTAT_DATA names no folder."
            return [*rows, Row("real run", "kaestat analyze, end to end", "s", None, at_most=AT_MOST, note=missing)]
        real = Path(folder) / REAL_FILE
        return rows + _case("real run", real, repetitions, AT_MOST) + _replays("real run", read_log(real), repetitions)


def _case(name: str, path: Path, repetitions: int, at_most: float | None = None) -> list[Row]:
    log = read_log(path)
    baselines = {method: make_baseline(method) for method in methods()}
    served = [name for name, made in baselines.items() if made.missing_input is None and not made.needs_weights]
    contributions = np.random.default_rng(0).random((len(log.prompts), len(served)))
    seconds = interleaved(
        {
            "kaestat analyze, end to end": lambda: _command(path),
            "of it: start and import": lambda: subprocess.run(
                [sys.executable, "-c", "import kaestat.report.commands"], check=True, env=_compiled()
            ),
            "of it: read": lambda: read_log(path),
            f"of it: risk of {len(served)} methods": lambda: value_risk(read_log(path), served, n_boot=0),
            f"of it: {DRAWS:,} draws": lambda: cluster_bootstrap(contributions, n_boot=DRAWS, seed=0),
        },
        repetitions=repetitions,
    )
    case = f"{name}: {len(log.prompts):,} prompts, {log.n_visits:,} visits"
    return [
        Row(case, quantity, "s", estimate(sample), at_most=at_most if "end to end" in quantity else None)
        for quantity, sample in seconds.items()
    ]


def _replays(name: str, log: RewardLog, repetitions: int) -> list[Row]:
    """How much faster replays together are than one after the other."""
    pooling = [method for method in default_methods() if risk_baseline(method).pools_prompts]
    tried = [method for name in TUNED_METHODS for method in candidates(name, wide_grid(log))]
    group = jackknife_groups(len(log.prompts), seed=0, n_groups=REPLAYS)

    def one_by_one(names: Sequence[str], parts: Sequence[RewardLog]) -> None:
        for part in parts:
            for method in names:
                visit_risk(part, risk_baseline(method), absolute=True)

    parts = [log, *(log.subset(group != k) for k in range(REPLAYS))]
    case = f"{name}: {len(log.prompts):,} prompts, {log.n_steps:,} steps"
    rows = []
    for what, together, apart in (
        (
            f"{len(pooling)} methods that pool prompts, {REPLAYS + 1} logs",
            lambda: prompt_risks(log, [*pooling, "grpo"], again=True),
            lambda: one_by_one(pooling, parts),
        ),
        (f"{len(tried)} candidates", lambda: prompt_risks(log, tried), lambda: one_by_one(tried, [log])),
    ):
        seconds = interleaved({"together": together, "apart": apart}, repetitions=repetitions)
        rows.append(Row(case, f"{what}, together", "s", estimate(seconds["together"])))
        times = ratio(seconds["apart"], seconds["together"])
        rows.append(Row(case, f"{what}: one by one / together", "ratio", times, at_least=2.0))
    return rows


def _steps_log(n_prompts: int, n_at_once: int, n_steps: int) -> RewardLog:
    """Prompts in a new order at every pass, whose logits rise by 0.01 a step."""
    rng = np.random.default_rng(0)
    logit = rng.normal(0, 1.5, n_prompts)
    passes = -(-n_at_once * n_steps // n_prompts)
    prompt = np.concatenate([rng.permutation(n_prompts) for _ in range(passes)])[: n_at_once * n_steps]
    step = np.arange(len(prompt)) // n_at_once
    value = 1 / (1 + np.exp(-logit[prompt] - 0.01 * step))
    reward = rng.random((len(prompt), GROUP)) < value[:, None]
    return RewardLog(np.repeat(prompt, GROUP), np.repeat(step, GROUP), reward.ravel())


def _command(path: Path) -> None:
    program = "from kaestat.report.entry import main; main()"  # what the installed `kaestat` runs
    command = [sys.executable, "-c", program, "analyze", str(path)]
    finished = subprocess.run(command, capture_output=True, text=True, env=_compiled())
    if finished.returncode or "kae_eb" not in finished.stdout:
        raise RuntimeError(f"kaestat analyze failed: {finished.stderr}")


def _compiled() -> dict[str, str]:
    """The environment, in which Python keeps compiled modules as it has those of an installed package."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _write_accuracies(path: Path, n_prompts: int, n_epochs: int) -> None:
    """The simulated run in the real file's format: a sequence of group accuracies per prompt."""
    frame = simulated_run(n_prompts=n_prompts, n_epochs=n_epochs).log.frame
    accuracy = frame.groupby(["prompt", "step"])["reward"].mean()
    sequences = {str(prompt): visits.tolist() for prompt, visits in accuracy.groupby(level="prompt")}
    path.write_text(json.dumps(sequences))
