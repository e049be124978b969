"""Figures and tables of training runs: from the results folder alone, and true to it."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from paper_figures.shared import output
from paper_figures.training import __main__ as command
from paper_figures.training import figures, tables
from paper_figures.training.results import read_results
from tests.helpers.commands import app
from tests.helpers.training_tables import STEPS, assert_same_tables, pictures, write_results

ROOT = Path(__file__).parents[3]
TABULATED = sorted(path.parent.name for path in (ROOT / "results" / "training").glob("*/tables"))

GAINS = {
    ("none", "none", "own", 1): 0.1,
    ("kae:bandwidth=80", "none", "own", 1): 0.3,
    ("kae", "score_norm", "own", 1): 0.35,
    ("none", "none", "own", 10): 0.05,
    ("reinforce++", "none", "none", 1): 0.2,
}


@pytest.fixture
def folder(tmp_path):
    return write_results(tmp_path, GAINS)


def test_the_command_builds_the_figure_and_the_tables(folder):
    result = CliRunner().invoke(app(command.main), [str(folder)], catch_exceptions=False)
    assert result.exit_code == 0
    for name in ("figures/training_curves.png", "figures/training_curves.pdf", "tables/training_final.md"):
        assert (folder / name).stat().st_size > 100
    table = (folder / "tables" / "training_final.md").read_text()
    # The last three tests are those at 60, 80 and 100: their mean is that at 80.
    assert (
        "| KAE (bandwidth 80) | 66.0 ± 1.2 | +16.0 [+16.0, +16.0] | 56.0 ± 1.2 | +16.0 [+16.0, +16.0] | 76.0" in table
    )
    assert "| KAE, weighted by score norm | 70.0 ± 1.2 |" in table
    assert "| No baseline | 50.0 ± 1.2 |  |" in table
    assert "| No baseline, J = 10 | 46.0 ± 1.2 | -4.0 [-4.0, -4.0]" in table
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


def test_the_noise_is_told_relative_to_the_signal_and_to_no_baseline(folder):
    shown = tables.noise_table(read_results(folder, ["gradients"])["gradients"]).set_index("Baseline")
    row = shown.loc["KAE (bandwidth 80)"]
    assert row["MSE / signal, first step"].startswith("6 ") and row["MSE / signal, later"].startswith("5 ")
    assert row["MSE / No baseline's, first step"].startswith("3 ")  # 3.0 against 1.0
    assert row["MSE / No baseline's, later"].startswith("1.67 ")  # 5.0 against 3.0
    assert shown.loc["REINFORCE++, unscaled", "MSE / No baseline's, later"].startswith("1.33 ")
    assert row["Measurements"] == "9"


def test_gradient_noise_is_compared_seed_by_seed(folder):
    gradients = read_results(folder, ["gradients"])["gradients"]
    kae = gradients["method"] == "kae:bandwidth=80"
    at_100 = gradients["step"] == 100
    gradients.loc[kae & at_100, "gradient_mse"] = [1.0, 2.0, 3.0]
    none = (gradients["method"] == "none") & (gradients["reuse"] == 1)
    gradients.loc[none & at_100, "gradient_mse"] = [2.0, 4.0, 12.0]
    gradients.loc[none & (gradients["step"] == 50) & (gradients["seed"] == 0), "gradient_signal"] = -0.1
    shown = tables.noise_difference_table(gradients).set_index("Baseline").loc["KAE (bandwidth 80)"]
    logs = np.log([0.5, 0.5, 0.25])  # signals are equal
    reach = 4.302653 * logs.std(ddof=1) / np.sqrt(3)
    low, middle, high = np.exp([logs.mean() - reach, logs.mean(), logs.mean() + reach])
    assert shown["Step 100"] == f"{middle:.2g} [{low:.2g}, {high:.2g}]"
    assert shown["Step 50"] == ""


def test_errors_are_drawn_along_the_run(folder):
    found = read_results(folder, ("gradients", "values"))
    noise, value = figures.errors(found["gradients"], found["values"]).axes
    lines = {line.get_color() + line.get_linestyle(): line for line in noise.lines}
    assert len(lines) == len(GAINS)
    np.testing.assert_allclose(noise.lines[1].get_ydata(), [6.0, 4.0, 6.0])  # 3, 4 and 6 over 0.5, 1 and 1
    drawn = [line for line in value.lines if len(line.get_ydata())]
    assert len(drawn) == 1  # the only baseline whose own error is in the table
    np.testing.assert_allclose(drawn[0].get_xdata(), [37.5, 50.0, 62.5])
    np.testing.assert_allclose(drawn[0].get_ydata(), [9.0, 0.01, 0.03])


def test_a_ratio_to_a_signal_that_is_not_clear_of_zero_is_not_drawn(folder):
    found = read_results(folder, ("gradients", "values"))
    gradients = found["gradients"]
    unclear = (gradients["method"] == "none") & (gradients["reuse"] == 1) & (gradients["step"] == 50)
    gradients.loc[unclear, "gradient_signal"] = [-1.0, 0.2, 1.0]
    drawn = figures.errors(gradients, found["values"]).axes[0].lines[0].get_ydata()
    assert np.isnan(drawn[1]) and np.isfinite(drawn[[0, 2]]).all()


@pytest.mark.parametrize(("gain", "scale"), [(0.1, "linear"), (0.52, "logit")])
def test_accuracies_near_one_are_spread_out(tmp_path, gain, scale):
    found = read_results(write_results(tmp_path, {("none", "none", "own", 1): gain}), ("tests", "curves"))
    axes = figures.curves(found["tests"], found["curves"]).axes
    assert [each.get_yscale() for each in axes] == [scale, "linear", "linear", "linear"]
    labels = {text.get_text() for text in axes[0].get_yticklabels()}
    assert ("0.95" in labels) == (scale == "logit")


def test_scaled_advantages_are_not_compared_by_size(tmp_path):
    gains = {("none", "none", "own", 1): 0.1, ("grpo", "none", "own", 1): 0.2, ("gpg", "none", "own", 1): 0.2}
    found = read_results(write_results(tmp_path, gains), ["gradients"])["gradients"]
    shown = tables.noise_table(found).set_index("Baseline")["MSE / No baseline's, later"]
    assert shown.to_dict() == {"No baseline": "1 ± 0.15", "GRPO": "", "GPG": ""}


def test_a_single_seed_has_no_error_to_show(tmp_path):
    found = read_results(write_results(tmp_path, GAINS, seeds=1), ("final", "differences"))
    shown = tables.final_table(found["final"], found["differences"]).set_index("Baseline").loc["No baseline, J = 10"]
    assert shown[["Greedy", "Greedy, difference", "Seeds"]].tolist() == ["44.0", "-4.0", "1"]


def test_a_ratio_of_means_has_the_error_of_its_residuals():
    above, below = pd.Series([2.0, 4.0, 6.0]), pd.Series([1.0, 2.0, 3.0])
    assert tables.ratio(above, below) == (2.0, 0.0)
    assert np.isnan(tables.ratio(above, -below)).all()  # a signal that drowns has no ratio


def test_value_errors_leave_the_first_quarter_out_and_count_runs(folder):
    shown = tables.value_table(read_results(folder, ["values"])["values"])
    assert shown.to_dict("records") == [{"Baseline": "KAE (bandwidth 80)", "Value MSE": "20 ± 0", "Runs": "15"}]


def test_with_one_completion_value_errors_are_differences(folder):
    values = read_results(folder, ["values"])["values"].assign(mse=np.nan)
    shown = tables.value_table(values)
    assert shown["Value MSE less the batch mean's"].item().startswith("-200 ")


def test_a_folder_without_tests_is_an_error_in_one_line(tmp_path):
    result = CliRunner().invoke(app(command.main), [str(tmp_path)])
    assert result.exit_code != 0
    with pytest.raises(FileNotFoundError, match=r"lacks tests, curves, final, differences"):
        command.build(tmp_path)


@pytest.mark.parametrize("experiment", TABULATED)
def test_committed_tables_of_an_experiment_are_built_from_its_committed_results(experiment, tmp_path, monkeypatch):
    monkeypatch.setattr(output, "render", lambda figure, kind: kind.encode())  # pixels are looked at elsewhere
    committed = ROOT / "results" / "training" / experiment
    for path in committed.glob("*.csv*"):
        shutil.copy(path, tmp_path)
    command.build(tmp_path)
    assert_same_tables(tmp_path, committed)
    assert {"training_curves.png", "training_curves.pdf"} <= pictures(tmp_path)


def test_no_picture_and_no_latex_is_committed_with_results():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: what is committed is not known")
    listed = subprocess.run(["git", "ls-files", "results"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {Path(name).suffix for name in listed.stdout.split()} == {".csv", ".gz", ".json", ".md"}
