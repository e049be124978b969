"""The paper's figures and tables of policy optimisation at small size: from the committed results, without training."""

from pathlib import Path

import pytest

from paper_figures.shared import output
from paper_figures.training import policy_optimization
from tests.helpers.training_tables import assert_same_tables, pictures, write_results

ROOT = Path(__file__).parents[3]


def plain(method: str, reuse: int = 1) -> tuple:
    return (method, "none", "own", reuse)


def test_a_variant_that_was_not_run_is_named(tmp_path):
    write_results(tmp_path / "tiny_one_shot", {plain("grpo"): 0.1})
    with pytest.raises(ValueError, match=r"no run of kae_stream with J = 1, only GRPO"):
        policy_optimization.figure(tmp_path / "tiny_one_shot", policy_optimization.FIGURES["one_shot"])


def test_committed_tables_of_the_paper_are_built_from_the_committed_results(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "render", lambda figure, kind: kind.encode())  # pixels are looked at elsewhere
    policy_optimization.build(ROOT / "results" / "training", tmp_path)
    assert_same_tables(tmp_path, ROOT / "results" / "policy_optimization")
    assert pictures(tmp_path) == {f"{name}.{kind}" for name in policy_optimization.FIGURES for kind in ("png", "pdf")}
