"""One's own accuracies and errors beside the paper's, seeds and completions pooled."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from paper_figures.shared import paper
from paper_figures.training import beside_paper
from tests.helpers.commands import app

ROOT = Path(__file__).parents[3]
NAMES = list(beside_paper.SETS)


def evaluation(folder: Path, rewards: dict[str, np.ndarray]) -> Path:
    """Rewards (problems x completions) of each set."""
    folder.mkdir(parents=True)
    rows = [
        (name, f"{name}/{problem}", sample, value)
        for name, all_ in rewards.items()
        for problem, of_problem in enumerate(all_)
        for sample, value in enumerate(of_problem)
    ]
    pd.DataFrame(rows, columns=["set", "problem", "sample", "reward"]).to_csv(folder / "problems.csv", index=False)
    return folder


def test_errors_are_over_problems_with_seeds_and_completions_as_clusters_and_over_seeds(tmp_path):
    first, second = np.array([[1, 1], [1, 0], [0, 0.0]]), np.array([[1, 0], [0, 0], [0, 0.0]])
    folders = [evaluation(tmp_path / f"{k}", {"math500": each}) for k, each in enumerate((first, second))]
    (found,) = beside_paper.pooled(folders).to_dict("records")
    by_problem = np.array([3 / 4, 1 / 4, 0])
    assert found["accuracy"] == pytest.approx(by_problem.mean())
    assert found["se_problems"] == pytest.approx(by_problem.std(ddof=1) / np.sqrt(3))
    assert found["se_seeds"] == pytest.approx(abs(first.mean() - second.mean()) / 2)
    assert found["se"] == pytest.approx(np.hypot(found["se_problems"], found["se_seeds"]))
    (alone,) = beside_paper.pooled(folders[:1]).to_dict("records")
    assert np.isnan(alone["se_seeds"]) and alone["se"] == alone["se_problems"]


def test_the_average_is_over_the_papers_sets_and_only_where_all_are_there(tmp_path):
    rng = np.random.default_rng(5)
    rewards = {name: (rng.random((9, 2)) < 0.5).astype(float) for name in [*NAMES, "gsm8k"]}
    found = beside_paper.pooled([evaluation(tmp_path / "all", rewards)]).set_index("set")
    assert found.loc["average", "accuracy"] == pytest.approx(found.loc[NAMES, "accuracy"].mean())
    assert found.loc["average", "se"] == pytest.approx(np.sqrt((found.loc[NAMES, "se"] ** 2).sum()) / 6)
    some = beside_paper.pooled([evaluation(tmp_path / "some", {"math500": rewards["math500"]})])
    assert list(some["set"]) == ["math500"]


def test_the_papers_numbers_stand_beside_those_of_its_own_schedule_alone(tmp_path):
    rewards = {"math500": np.eye(4)}
    folders = [evaluation(tmp_path / name, rewards) for name in ("kae", "kae1", "grpo", "grpo10", "krpo")]
    variants = ["kae:bandwidth=10|10", "kae:bandwidth=10|1", "grpo|1", "grpo|10", "krpo|1"]
    arguments = ["table3", *map(str, folders), "--out", str(tmp_path / "out")]
    for each in variants:
        arguments += ["--variant", each]
    result = CliRunner().invoke(app(beside_paper.main), arguments)
    assert result.exit_code == 0
    found = pd.read_csv(tmp_path / "out" / "table3.csv")
    printed = paper.accuracies().query("table == 3 and benchmark == 'math'").set_index("method")["accuracy"]
    assert found["paper"].fillna(-1).tolist() == [printed["kae"], -1, printed["grpo"], -1, -1]
    assert "KAE (bandwidth 10), J = 10" in result.output


def diagnosed(folder: Path, *, sticky: bool) -> Path:
    """A diagnosis that is kept, as if its task were GSM8K; random ones have other numbers."""
    shutil.copytree(ROOT / "results" / "tiny", folder, ignore=shutil.ignore_patterns("tables"))
    provenance = json.loads((folder / "provenance.json").read_text())
    for stage in provenance.values():
        stage["config"]["task"]["name"] = "gsm8k"
        stage["config"]["problem_ids"] = ["a", "b"] if sticky else None
    (folder / "provenance.json").write_text(json.dumps(provenance))
    for name in ("value_mse", "gradient_mse") if not sticky else ():
        frame = pd.read_csv(folder / f"{name}.csv", keep_default_na=False)
        frame.assign(mse=frame["mse"] * 2).to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.mark.parametrize("table", ["table1", "table2"])
def test_errors_of_sticky_and_random_prompts_stand_side_by_side_and_the_papers_beside_the_sticky(table, tmp_path):
    folders = [diagnosed(tmp_path / "run", sticky=True), diagnosed(tmp_path / "run-random", sticky=False)]
    result = CliRunner().invoke(app(beside_paper.main), [table, *map(str, folders), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    found = pd.read_csv(tmp_path / "out" / f"{table}.csv").set_index(["prompts", "step", "quantity"]).sort_index()
    assert set(found["dataset"]) == {"gsm8k"}
    printed = paper.reductions(int(table[-1]))
    for row in printed.query("dataset == 'gsm8k' and step == 10").itertuples():  # the others are steps of its own
        ours = found.loc[("sticky", row.step, f"reduction {row.versus}")]
        assert ours["paper"] == row.reduction_pct and ours["low"] < ours["ours"] < ours["high"]
    assert found.loc["sticky", "paper"].notna().sum() == (5 if table == "table1" else 2)
    assert found.loc["random", "paper"].isna().all()
    level, twice = (found.loc[(prompts, 10, "kae"), "ours"] for prompts in ("sticky", "random"))
    assert twice == pytest.approx(2 * level, rel=1e-3)
    (text,) = (line for line in result.output.splitlines() if line.startswith("| GSM8K | random | KAE |"))
    assert f"| {twice:.2f} ± " in text


def test_two_runs_of_one_data_set_have_a_row_each(tmp_path):
    folders = [diagnosed(tmp_path / name, sticky=True) for name in ("seed-0", "seed-1")]
    result = CliRunner().invoke(app(beside_paper.main), ["table1", *map(str, folders), "--out", str(tmp_path / "out")])
    rows = [line for line in result.output.splitlines() if "| GSM8K | sticky | KAE |" in line]
    assert [row.split("|")[1].strip() for row in rows] == ["seed-0", "seed-1"]
