"""The examples run as they stand."""

import runpy
import sys
from pathlib import Path

import pandas as pd
import pytest

from kaestat.datasets import simulated_run
from kaestat.report.cli import run

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_log_is_the_simulated_run_that_its_page_names_and_is_analysed(capsys):
    expected = simulated_run(n_prompts=60, n_epochs=12, group_size=4, seed=3).log.frame
    log = pd.read_csv(EXAMPLES / "rewards.csv")
    assert log[["step", "reward"]].equals(expected[["step", "reward"]].astype(int))
    assert run(["analyze", str(EXAMPLES / "rewards.csv")]) == 0
    assert "60 prompts" in capsys.readouterr().out


def test_the_script_for_trl_trains_a_tiny_model_with_one_completion_per_prompt(tmp_path, monkeypatch, capsys):
    pytest.importorskip("trl")
    from tests.helpers.small_policies import small_model

    model, tokenizer = small_model()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    script = EXAMPLES / "train_with_trl.py"
    arguments = ["--model", str(tmp_path / "model"), "--steps", "3", "--out", str(tmp_path / "runs")]
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    reward = runpy.run_path(str(script), run_name="__main__")["reward"]
    assert reward(["1", " 1\nbecause", "10", ""], ["1"] * 4) == [1, 1, 0, 0]
    assert "after step 2, " in capsys.readouterr().out  # three generations were learned from
    assert len(script.read_text().splitlines()) <= 50
