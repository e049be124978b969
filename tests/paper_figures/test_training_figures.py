"""Figures and tables of training runs: from the results folder alone, and true to it."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from llm_experiments.training.collect import binned, differences, final, run_ends
from paper_figures import training

VARIANTS = (("kae:bandwidth=80", "none", 1), ("kae", "score_norm", 1), ("none", "none", 1), ("none", "none", 10))
GAINS = dict(zip(VARIANTS, (0.3, 0.35, 0.1, 0.05), strict=True))


@pytest.fixture
def folder(tmp_path):
    """Results of four variants and three seeds, whose accuracy grows linearly."""
    rng = np.random.default_rng(0)
    tests, curves = [], []
    for variant, gain in GAINS.items():
        for seed in range(3):
            keys = dict(zip(("method", "weights", "reuse", "seed"), (*variant, seed), strict=True))
            step = np.arange(0, 101, 20)
            greedy = 0.4 + gain * step / 100 + 0.02 * seed
            tests.append(pd.DataFrame({**keys, "step": step, "greedy": greedy, "accuracy": greedy - 0.1}))
            curve = pd.DataFrame({"step": range(100), "mean_reward": rng.random(100), "entropy": rng.random(100)})
            curves.append(binned(curve).assign(**keys))
    tests = pd.concat(tests, ignore_index=True)
    ends = run_ends(tests)
    frames = {"tests": tests, "curves": pd.concat(curves), "final": final(ends), "differences": differences(ends)}
    for name, frame in frames.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


def test_the_command_builds_figure_and_table(folder):
    result = CliRunner().invoke(_app(), [str(folder)], catch_exceptions=False)
    assert result.exit_code == 0
    for name in ("figures/training_curves.png", "figures/training_curves.pdf", "tables/training_final.md"):
        assert (folder / name).stat().st_size > 100
    table = (folder / "tables" / "training_final.md").read_text()
    # The last three tests are those at 60, 80 and 100: their mean is that at 80.
    assert "| KAE (bandwidth 80) | 66.0 ± 1.2 | +16.0 [+16.0, +16.0] | 56.0 ± 1.2 | +16.0 [+16.0, +16.0] | 3 |" in table
    assert "| KAE, weighted by score norm | 70.0 ± 1.2 |" in table
    assert "| No baseline | 50.0 ± 1.2 |  |" in table
    assert "| No baseline, J = 10 | 46.0 ± 1.2 | -4.0 [-4.0, -4.0]" in table


def test_lines_are_means_over_seeds(folder):
    figure = training.curves(
        pd.read_csv(folder / "tests.csv", keep_default_na=False),
        pd.read_csv(folder / "curves.csv", keep_default_na=False),
    )
    upper = figure.axes[0]
    assert len(upper.lines) == 4
    np.testing.assert_allclose(upper.lines[0].get_ydata(), 0.42 + 0.3 * np.arange(0, 101, 20) / 100)
    assert len({(line.get_color(), line.get_linestyle()) for line in upper.lines}) == 4
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width


def test_a_folder_without_tests_is_an_error_in_one_line(tmp_path):
    result = CliRunner().invoke(_app(), [str(tmp_path)])
    assert result.exit_code != 0
    with pytest.raises(FileNotFoundError, match=r"lacks tests, curves, final, differences"):
        training.build(tmp_path)


def _app():
    import typer

    app = typer.Typer()
    app.command()(training.main)
    return app
