"""Result tables of training runs whose numbers are all known."""

from pathlib import Path

import numpy as np
import pandas as pd

from llm_experiments.training.collect import binned, differences, final, run_ends
from paper_figures.training.results import VARIANT

KEYS = [*VARIANT, "seed"]
STEPS = np.arange(0, 101, 20)
KEPT = ("training_noise", "training_values")  # tables whose code is gone


def write_results(folder: Path, gains: dict[tuple, float], seeds: int = 3) -> Path:
    """Results whose accuracy grows linearly, all numbers known."""
    rng = np.random.default_rng(0)
    tests, curves = [], []
    for variant, gain in gains.items():
        for seed in range(seeds):
            keys = dict(zip(KEYS, (*variant, seed), strict=True))
            greedy = 0.4 + gain * STEPS / 100 + 0.02 * seed
            outcomes = {"greedy": greedy, "accuracy": greedy - 0.1, "pass_at_samples": greedy + 0.1}
            tests.append(pd.DataFrame({**keys, "step": STEPS, **outcomes}))
            curve = pd.DataFrame({"step": range(100), "mean_reward": rng.random(100), "entropy": rng.random(100)})
            curves.append(binned(curve).assign(**keys))
    tests = pd.concat(tests, ignore_index=True)
    ends = run_ends(tests)
    frames = {"tests": tests, "curves": pd.concat(curves), "final": final(ends), "differences": differences(ends)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    return folder


def assert_same_tables(built: Path, committed: Path) -> None:
    """The Markdown built is the Markdown committed, file by file."""
    here, there = (
        {path.name: path.read_text() for path in (each / "tables").glob("*.md") if not path.name.startswith(KEPT)}
        for each in (built, committed)
    )
    assert there and {name: here[name] for name in there} == there


def pictures(built: Path) -> set[str]:
    """Names of the files in the folder of figures."""
    return {path.name for path in (built / "figures").iterdir()}
