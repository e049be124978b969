"""Figures and tables of training runs: from the results folder alone, and true to it."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from llm_experiments.training.collect import binned, differences, final, run_ends
from paper_figures import evaluations, output, policy_optimization, training
from paper_figures.training_results import VARIANT, read_results, variants_of

ROOT = Path(training.__file__).parents[1]
TABULATED = sorted(path.parent.name for path in (ROOT / "results" / "training").glob("*/tables"))
KEYS = [*VARIANT, "seed"]
GAINS = {
    ("none", "none", "own", 1): 0.1,
    ("kae:bandwidth=80", "none", "own", 1): 0.3,
    ("kae", "score_norm", "own", 1): 0.35,
    ("none", "none", "own", 10): 0.05,
    ("reinforce++", "none", "none", 1): 0.2,
}
STEPS = np.arange(0, 101, 20)


def write_results(folder: Path, gains: dict[tuple, float], seeds: int = 3) -> Path:
    """Results whose accuracy grows linearly, all numbers known."""
    rng = np.random.default_rng(0)
    tests, curves, gradients, values = [], [], [], []
    for variant, gain in gains.items():
        for seed in range(seeds):
            keys = dict(zip(KEYS, (*variant, seed), strict=True))
            greedy = 0.4 + gain * STEPS / 100 + 0.02 * seed
            outcomes = {"greedy": greedy, "accuracy": greedy - 0.1, "pass_at_samples": greedy + 0.1}
            tests.append(pd.DataFrame({**keys, "step": STEPS, **outcomes}))
            curve = pd.DataFrame({"step": range(100), "mean_reward": rng.random(100), "entropy": rng.random(100)})
            curves.append(binned(curve).assign(**keys))
            noise = {"gradient_mse": 10 * gain + np.array([0.0, 1.0, 3.0]), "gradient_signal": [0.5, 1.0, 1.0]}
            gradients.append(pd.DataFrame({**keys, "step": [0, 50, 100], **noise}))
            error = {"mse": [9.0, 0.01, 0.03], "less_reference": [0.0, -0.2, -0.2]}
            values.append(
                pd.DataFrame({**keys, "baseline": "kae:bandwidth=80", "from_step": [0, 25, 50], "to_step": 75, **error})
            )
    tests = pd.concat(tests, ignore_index=True)
    ends = run_ends(tests)
    frames = {"tests": tests, "curves": pd.concat(curves), "final": final(ends), "differences": differences(ends)}
    frames |= {"gradients": pd.concat(gradients), "values": pd.concat(values)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_results(tmp_path, GAINS)


def assert_same_tables(built: Path, committed: Path) -> None:
    """The Markdown built is the Markdown committed, file by file."""
    here, there = (
        {path.name: path.read_text() for path in (each / "tables").glob("*.md")} for each in (built, committed)
    )
    assert here == there != {}


def pictures(built: Path) -> set[str]:
    return {path.name for path in (built / "figures").iterdir()}


def app(command):
    found = typer.Typer()
    found.command()(command)
    return found


# --- an experiment ----------------------------------------------------------------------------------------------------


def test_the_command_builds_the_figure_and_the_tables(folder):
    result = CliRunner().invoke(app(training.main), [str(folder)], catch_exceptions=False)
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
    figure = training.curves(found["tests"], found["curves"])
    upper = figure.axes[0]
    assert len(upper.lines) == len(GAINS)
    np.testing.assert_allclose(upper.lines[1].get_ydata(), 0.42 + 0.3 * STEPS / 100)
    assert len({(line.get_color(), line.get_linestyle()) for line in upper.lines}) == len(GAINS)
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width


def test_the_noise_is_told_relative_to_the_signal_and_to_no_baseline(folder):
    shown = training.noise_table(read_results(folder, ["gradients"])["gradients"]).set_index("Baseline")
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
    shown = training.noise_difference_table(gradients).set_index("Baseline").loc["KAE (bandwidth 80)"]
    logs = np.log([0.5, 0.5, 0.25])  # signals are equal
    reach = 4.302653 * logs.std(ddof=1) / np.sqrt(3)
    low, middle, high = np.exp([logs.mean() - reach, logs.mean(), logs.mean() + reach])
    assert shown["Step 100"] == f"{middle:.2g} [{low:.2g}, {high:.2g}]"
    assert shown["Step 50"] == ""


def test_errors_are_drawn_along_the_run(folder):
    found = read_results(folder, ("gradients", "values"))
    noise, value = training.errors(found["gradients"], found["values"]).axes
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
    drawn = training.errors(gradients, found["values"]).axes[0].lines[0].get_ydata()
    assert np.isnan(drawn[1]) and np.isfinite(drawn[[0, 2]]).all()


@pytest.mark.parametrize(("gain", "scale"), [(0.1, "linear"), (0.52, "logit")])
def test_accuracies_near_one_are_spread_out(tmp_path, gain, scale):
    found = read_results(write_results(tmp_path, {("none", "none", "own", 1): gain}), ("tests", "curves"))
    axes = training.curves(found["tests"], found["curves"]).axes
    assert [each.get_yscale() for each in axes] == [scale, "linear", "linear", "linear"]
    labels = {text.get_text() for text in axes[0].get_yticklabels()}
    assert ("0.95" in labels) == (scale == "logit")


def test_scaled_advantages_are_not_compared_by_size(tmp_path):
    gains = {("none", "none", "own", 1): 0.1, ("grpo", "none", "own", 1): 0.2, ("gpg", "none", "own", 1): 0.2}
    found = read_results(write_results(tmp_path, gains), ["gradients"])["gradients"]
    shown = training.noise_table(found).set_index("Baseline")["MSE / No baseline's, later"]
    assert shown.to_dict() == {"No baseline": "1 ± 0.15", "GRPO": "", "GPG": ""}


def test_a_single_seed_has_no_error_to_show(tmp_path):
    found = read_results(write_results(tmp_path, GAINS, seeds=1), ("final", "differences"))
    shown = training.final_table(found["final"], found["differences"]).set_index("Baseline").loc["No baseline, J = 10"]
    assert shown[["Greedy", "Greedy, difference", "Seeds"]].tolist() == ["44.0", "-4.0", "1"]


def test_a_ratio_of_means_has_the_error_of_its_residuals():
    above, below = pd.Series([2.0, 4.0, 6.0]), pd.Series([1.0, 2.0, 3.0])
    assert training.ratio(above, below) == (2.0, 0.0)
    assert np.isnan(training.ratio(above, -below)).all()  # a signal that drowns has no ratio


def test_value_errors_leave_the_first_quarter_out_and_count_runs(folder):
    shown = training.value_table(read_results(folder, ["values"])["values"])
    assert shown.to_dict("records") == [{"Baseline": "KAE (bandwidth 80)", "Value MSE": "20 ± 0", "Runs": "15"}]


def test_with_one_completion_value_errors_are_differences(folder):
    values = read_results(folder, ["values"])["values"].assign(mse=np.nan)
    shown = training.value_table(values)
    assert shown["Value MSE less the batch mean's"].item().startswith("-200 ")


def test_a_folder_without_tests_is_an_error_in_one_line(tmp_path):
    result = CliRunner().invoke(app(training.main), [str(tmp_path)])
    assert result.exit_code != 0
    with pytest.raises(FileNotFoundError, match=r"lacks tests, curves, final, differences"):
        training.build(tmp_path)


# --- the paper's figures and tables -----------------------------------------------------------------------------------


def plain(method: str, reuse: int = 1) -> tuple:
    return (method, "none", "own", reuse)


def test_the_papers_figures_and_tables_come_from_three_experiments(tmp_path):
    for name, wanted in policy_optimization.FIGURES.items():
        variants = {plain(f"{method}:bandwidth=9" if "kae" in method else method, j) for method, j in wanted.variants}
        extra = {plain(method) for method in policy_optimization.TABLE_METHODS if method != "kae"}
        gains = dict.fromkeys(sorted(variants | extra), 0.2)
        write_results(tmp_path / "in" / wanted.experiment, gains)
        assert name in ("one_shot", "single_stream", "ablation")
    write_results(tmp_path / "in" / "tiny_multi_stream_g4", gains)
    policy_optimization.build(tmp_path / "in", tmp_path / "out")
    for name in ("one_shot", "single_stream", "ablation"):
        assert (tmp_path / "out" / "figures" / f"{name}.png").stat().st_size > 1000
    table = (tmp_path / "out" / "tables" / "table4_small.md").read_text()
    assert "G = 4" in table and "Table 4" in table and "over 3 seeds" in table
    assert "| KAE (bandwidth 9) | 0.5800 ± 0.0115 | 0.4800 ± 0.0115 | 0.6800 ± 0.0115 | 0.4400 ± 0.0115 |" in table


def test_a_variant_that_was_not_run_is_named(tmp_path):
    write_results(tmp_path / "tiny_one_shot", {plain("grpo"): 0.1})
    with pytest.raises(ValueError, match=r"no run of kae_stream with J = 1, only GRPO"):
        policy_optimization.figure(tmp_path / "tiny_one_shot", policy_optimization.FIGURES["one_shot"])


def test_committed_tables_of_the_paper_are_built_from_the_committed_results(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "render", lambda figure, kind: kind.encode())  # pixels are looked at elsewhere
    policy_optimization.build(ROOT / "results" / "training", tmp_path)
    assert_same_tables(tmp_path, ROOT / "results" / "policy_optimization")
    assert pictures(tmp_path) == {f"{name}.{kind}" for name in policy_optimization.FIGURES for kind in ("png", "pdf")}


@pytest.mark.parametrize("experiment", TABULATED)
def test_committed_tables_of_an_experiment_are_built_from_its_committed_results(experiment, tmp_path, monkeypatch):
    monkeypatch.setattr(output, "render", lambda figure, kind: kind.encode())  # pixels are looked at elsewhere
    committed = ROOT / "results" / "training" / experiment
    for path in committed.glob("*.csv"):
        shutil.copy(path, tmp_path)
    training.build(tmp_path)
    assert_same_tables(tmp_path, committed)
    assert {"training_curves.png", "training_curves.pdf"} <= pictures(tmp_path)


def test_no_picture_and_no_latex_is_committed_with_results():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: what is committed is not known")
    listed = subprocess.run(["git", "ls-files", "results"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {Path(name).suffix for name in listed.stdout.split()} == {".csv", ".json", ".md"}


@pytest.mark.parametrize("experiment", ["tiny_single_stream", "tiny_multi_stream_g4", "tiny_multi_stream_g8"])
def test_in_the_committed_runs_every_method_raises_test_accuracy_beyond_noise(experiment):
    final = read_results(ROOT / "results" / "training" / experiment, ["final"])["final"]
    gains = final[final["outcome"] == "gain"]
    assert len(gains) == len(variants_of(final))
    assert (gains["n_seeds"] >= 5).all()
    assert (gains["mean"] > 4 * gains["se"]).all()


def test_in_the_committed_one_shot_runs_one_problem_teaches_others():
    found = read_results(ROOT / "results" / "training" / "tiny_one_shot", ["tests", "curves"])
    greedy = found["tests"].pivot_table(index=["method", "seed"], columns="step", values="greedy")
    for _, rise in (greedy[100] - greedy[0]).groupby("method"):
        assert len(rise) >= 5 and rise.mean() > 4 * rise.std(ddof=1) / np.sqrt(len(rise))
    last = found["curves"].sort_values("step").groupby(["method", "seed"])["mean_reward"].last()
    assert (last > 0.9).all()


# --- evaluations ------------------------------------------------------------------------------------------------------


def evaluation(folder: Path, name: str, accuracies: dict[str, float]) -> Path:
    (folder / name).mkdir()
    rows = [{"set": each, "accuracy": value, "se": 0.01} for each, value in accuracies.items()]
    pd.DataFrame(rows).to_csv(folder / name / "accuracy.csv", index=False)
    return folder / name


def test_evaluations_stand_in_the_papers_layout(tmp_path):
    mine = evaluation(tmp_path, "kae", {"math500": 0.772, "aime24": 0.2969, "average": 0.5345})
    theirs = evaluation(tmp_path, "grpo", {"math500": 0.754, "aime24": 0.2844, "average": 0.5192})
    out = tmp_path / "out"
    result = CliRunner().invoke(app(evaluations.main), [str(theirs), str(mine), "--out", str(out)])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert "| Method | AIME24 | MATH | Avg |" in lines
    assert "| kae | 0.2969 ± 0.0100 | 0.7720 ± 0.0100 | 0.5345 ± 0.0100 |" in lines
    assert (out / "tables" / "evaluations.tex").is_file()


def test_evaluations_of_different_sets_are_refused(tmp_path):
    folders = [
        evaluation(tmp_path, "one", {"math500": 0.5}),
        evaluation(tmp_path, "two", {"gsm8k": 0.5}),
    ]
    with pytest.raises(ValueError, match=r"different sets: one of math500; two of gsm8k"):
        evaluations.evaluations_table(folders)
    with pytest.raises(FileNotFoundError, match="no such file"):
        evaluations.evaluations_table([tmp_path / "nothing"])
