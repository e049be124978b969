"""Figures and tables of training runs: from the results folder alone, and true to it."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from llm_experiments.training.collect import binned, differences, final, run_ends
from paper_figures import results as command
from paper_figures.results import training as build
from paper_figures.shared import output
from paper_figures.training import figures, tables
from paper_figures.training.results import VARIANT, read_results
from tests.helpers.commands import app

ROOT = Path(__file__).parents[3]
TABULATED = sorted(path.parents[1].name for path in (ROOT / "results" / "training").glob("*/tables/training_final.md"))
KEYS = [*VARIANT, "seed"]
STEPS = np.arange(0, 101, 20)
KEPT = ("training_noise", "training_values")  # tables whose code is gone

GAINS = {
    ("none", "none", "own", 1): 0.1,
    ("kae:bandwidth=80", "none", "own", 1): 0.3,
    ("kae", "score_norm", "own", 1): 0.35,
    ("none", "none", "own", 10): 0.05,
    ("reinforce++", "none", "none", 1): 0.2,
}


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


@pytest.fixture
def folder(tmp_path):
    return write_results(tmp_path, GAINS)


def test_the_command_builds_the_figure_and_the_tables(folder):
    result = CliRunner().invoke(app(command.main), [str(folder)], catch_exceptions=False)
    assert result.exit_code == 0
    for name in ("figures/training_curves.png", "figures/training_curves.pdf", "tables/training_final.md"):
        assert (folder / name).stat().st_size > 100
    # The last three tests are those at 60, 80 and 100: their mean is that at 80.
    table = (folder / "tables" / "training_final.md").read_text()
    assert "| KAE (bandwidth 80) | 66.0 ± 1.2 | +16.0 [+16.0, +16.0] |" in table
    assert "| REINFORCE++, unscaled |" in table


def test_lines_are_means_over_seeds(folder):
    found = read_results(folder, ("tests", "curves"))
    figure = figures.curves(found["tests"], found["curves"])
    upper = figure.axes[0]
    assert len(upper.lines) == len(GAINS)
    np.testing.assert_allclose(upper.lines[1].get_ydata(), 0.42 + 0.3 * STEPS / 100)
    assert len({(line.get_color(), line.get_linestyle()) for line in upper.lines}) == len(GAINS)
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width


def test_differences_are_from_the_variant_that_the_caption_names(tmp_path):
    gains = {("kae", "length", "own", 1): 0.1, ("kae", "none", "own", 1): 0.3}
    found = read_results(write_results(tmp_path, gains), ("final", "differences"))
    shown = tables.final_table(found["final"], found["differences"])["Sampled, difference"].tolist()
    assert shown[0] == "" and shown[1].startswith("+")


@pytest.mark.parametrize("experiment", TABULATED)
def test_committed_tables_of_an_experiment_are_built_from_its_committed_results(experiment, tmp_path, monkeypatch):
    monkeypatch.setattr(output, "render", lambda figure, kind: kind.encode())  # pixels are looked at elsewhere
    committed = ROOT / "results" / "training" / experiment
    for path in committed.glob("*.csv*"):
        shutil.copy(path, tmp_path)
    build(tmp_path)
    here, there = (
        {path.name: path.read_text() for path in (each / "tables").glob("*.md") if not path.name.startswith(KEPT)}
        for each in (tmp_path, committed)
    )
    assert there and {name: here[name] for name in there} == there
    assert {"training_curves.png", "training_curves.pdf"} <= {path.name for path in (tmp_path / "figures").iterdir()}
