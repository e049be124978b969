"""The paper's figures and tables of policy optimisation at small size: from the committed results, without training."""

from pathlib import Path

import numpy as np
import pytest

from paper_figures.shared import output
from paper_figures.training import policy_optimization
from paper_figures.training.results import read_results, variants_of
from tests.helpers.training_tables import assert_same_tables, pictures, write_results

ROOT = Path(__file__).parents[3]


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
