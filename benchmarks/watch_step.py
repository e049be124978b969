"""``kaestat watch``: what a step costs once the run is long, against analysing the whole log again.

The log is a CSV table of a run with 1,024 completions a step (128 prompts, groups of eight) over 100,000 prompts, each
visited twice, with lengths. Timed, at its end: one look of the command's `Follower` after a step's rows were appended
(reading the new rows, four estimators' step, the sums), with the summary and both files of ``--out`` written; and what
would have to be done again without a state: `read_log`, `value_risk` of the same four methods without a bootstrap, and
`gradient_risk` of them. A whole ``kaestat analyze`` replays thirty methods, with intervals, and takes longer.
Times are those of the processor.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.rows import Row
from benchmarks.timing import estimate, ratio
from kaestat import gradient_risk, read_log, value_risk
from kaestat.report.watch_command import Follower
from kaestat.report.watch_text import watch_line

CODE = ("kaestat/watch",)
CLAIM = "An update of kaestat watch costs less than a hundredth of analysing the log with the same methods again"
SIZES = {"full": (100_000, 128, 2, 40, 3), "tiny": (12, 4, 2, 2, 1)}
GROUP = 8


def run(size: str = "full") -> list[Row]:
    """Milliseconds of an update, seconds of an analysis, and their ratio."""
    n_prompts, at_once, visits, n_updates, repetitions = SIZES[size]
    steps = _steps(n_prompts, at_once, visits)
    case = f"{n_prompts:,} prompts, {at_once * GROUP:,} rows a step, {len(steps):,} steps"
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run.csv"
        pd.concat(steps[:-n_updates]).to_csv(log, index=False)
        follower = Follower(log, "auto", {}, ["kae_eb", "kae"], Path(folder) / "out", "kaestat watch run.csv")
        follower.look()
        updates = []
        for rows in steps[-n_updates:]:
            rows.to_csv(log, mode="a", header=False, index=False)
            begin = time.process_time()
            follower.look()
            watch_line(follower.monitor.summary())
            updates.append(time.process_time() - begin)
        names = [row.method for row in follower.monitor.summary().methods]
        again = [_analysis(log, names) for _ in range(repetitions)]
    update, analysis = np.array(updates), np.array(again)
    paired = np.repeat(analysis, len(updates))
    return [
        Row(case, "update, files written", "ms", estimate(1e3 * update)),
        Row(case, f"analysis with the same {len(names)} methods", "s", estimate(analysis)),
        Row(case, "update / analysis", "ratio", ratio(np.tile(update, len(again)), paired), at_most=0.01),
    ]


def _analysis(log: Path, names: list[str]) -> float:
    begin = time.process_time()
    whole = read_log(log)
    value_risk(whole, names, n_boot=0)
    gradient_risk(whole, names, n_boot=0)
    return time.process_time() - begin


def _steps(n_prompts: int, at_once: int, visits: int) -> list[pd.DataFrame]:
    """The rows of each step; prompts in a new order at every pass."""
    rng = np.random.default_rng(0)
    value = rng.random(n_prompts)
    order = np.concatenate([rng.permutation(n_prompts) for _ in range(visits)])
    order = order[: len(order) // at_once * at_once].reshape(-1, at_once)
    made = []
    for step, prompts in enumerate(order):
        prompt = np.repeat(prompts, GROUP)
        reward = (rng.random(len(prompt)) < value[prompt]).astype(int)
        made.append(
            pd.DataFrame(
                {
                    "prompt": [f"train/{number:07d}" for number in prompt],
                    "step": step,
                    "reward": reward,
                    "length": rng.integers(50, 500, len(prompt)),
                }
            )
        )
    return made
