"""Accuracies of several models in the paper's layout."""

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from paper_figures.training import evaluations
from tests.helpers.commands import app


def evaluation(folder: Path, name: str, accuracies: dict[str, float]) -> Path:
    (folder / name).mkdir()
    rows = [{"set": each, "accuracy": value, "se": 0.01} for each, value in accuracies.items()]
    pd.DataFrame(rows).to_csv(folder / name / "accuracy.csv", index=False)
    return folder / name


def test_evaluations_stand_in_the_papers_layout(tmp_path):
    mine = evaluation(tmp_path, "kae", {"math500": 0.772, "aime24": 0.2969, "paper_average": 0.5345, "gsm8k": 0.9})
    theirs = evaluation(tmp_path, "grpo", {"math500": 0.754, "aime24": 0.2844, "paper_average": 0.5192, "gsm8k": 0.8})
    out = tmp_path / "out"
    result = CliRunner().invoke(app(evaluations.main), [str(theirs), str(mine), "--out", str(out)])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert "| Method | AIME24 | MATH | Avg | GSM8K |" in lines
    assert "| kae | 0.2969 ± 0.0100 | 0.7720 ± 0.0100 | 0.5345 ± 0.0100 | 0.9000 ± 0.0100 |" in lines
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
