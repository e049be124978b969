"""The whole command on a small model made in the test: every stage, resumed, reproducible, and refused when wrong."""

import json
import shutil

import pandas as pd
import pytest

from llm_experiments import cli
from llm_experiments.diagnose.results import read_results
from tests.helpers.small_diagnosis import CONFIG, call


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diagnose")
    assert call("diagnose", folder, CONFIG) == 0
    return folder


def test_every_table_is_there_and_filled(finished):
    results = read_results(finished / "results" / "smoke")
    assert len(results.frames()) == 9
    for name, frame in results.frames().items():
        assert len(frame), name
    assert set(results.value_mse["method"]) >= {"kae", "kae_eb", "grpo", "reinforce++", "none", "spo", "kalman"}
    assert set(results.gradient_mse["method"]) >= {"kae", "kae@exact", "kae@length", "kae@logit_norm", "best_baseline"}
    assert (results.gradient_mse["n_prompts"] == 4).all() and (results.value_mse["step"] == 3).all()


def test_provenance_tells_configuration_cost_and_no_path(finished):
    provenance = json.loads((finished / "results" / "smoke" / "provenance.json").read_text())
    assert set(provenance) == {"value", "gradient"}
    assert provenance["gradient"]["config"]["seed"] == 5
    assert str(finished) not in json.dumps(provenance)


@pytest.mark.slow
def test_a_second_run_elsewhere_gives_the_same_tables(finished, tmp_path):
    assert call("diagnose", tmp_path, CONFIG) == 0
    for path in (finished / "results" / "smoke").glob("*.csv"):
        again = pd.read_csv(tmp_path / "results" / "smoke" / path.name)
        pd.testing.assert_frame_equal(again, pd.read_csv(path), obj=path.name)


def test_an_analysis_repeated_samples_nothing_anew(finished):
    pools = sorted((finished / "runs" / "smoke" / "pools").rglob("*.parquet"))
    before = [path.stat().st_mtime_ns for path in pools]
    assert len(pools) == 4 * 3
    assert call("diagnose", finished, CONFIG) == 0
    assert [path.stat().st_mtime_ns for path in pools] == before


def test_changed_settings_are_refused_in_one_line(finished, capsys):
    changed = CONFIG | {"sampling": CONFIG["sampling"] | {"temperature": 0.5}}
    assert call("diagnose", finished, changed, "--stage", "pools") == cli.FAILED
    assert "other settings (sampling)" in capsys.readouterr().err


def test_scores_of_other_weights_than_the_pool_s_are_refused(finished, tmp_path, capsys):
    shutil.copytree(finished / "runs", tmp_path / "runs")
    training = tmp_path / "runs" / "smoke" / "training"
    shutil.rmtree(tmp_path / "runs" / "smoke" / "scores")
    shutil.rmtree(training / "checkpoint-000003")
    shutil.copytree(next((tmp_path / "runs" / "models").glob("tiny-*")), training / "checkpoint-000003")
    assert call("diagnose", tmp_path, CONFIG, "--stage", "gradient") == cli.FAILED
    assert "log-probability" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["diagnose"], ["diagnose", "--config", "x.yaml", "--stage", "all of it"]])
def test_a_wrong_command_line_is_told_in_one_line(arguments, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["llm_experiments", *arguments])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code == cli.USAGE
    assert capsys.readouterr().err.startswith("error: ")
