"""From one command to the tables: what is run, that it goes on where it was killed, and that the frameworks take it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from llm_experiments import cli
from llm_experiments.paper.command import run_parts
from llm_experiments.paper.plan import FSDP, TABLES, Machinery, Part, plan
from llm_experiments.training.experiment import load_experiment
from tests.llm_experiments.training.test_snapshots import RUN

ROOT = Path(cli.__file__).parents[1]


def machinery(tmp_path, **options) -> Machinery:
    settings = {"backend": "verl", "gpus": 8, "nodes": 1, "data": None} | options
    return Machinery(runs=tmp_path / "runs", results=tmp_path / "results", **settings)


@pytest.mark.parametrize("backend", ["trl", "verl"])
@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_a_plan_in_order(table, backend, tmp_path):
    parts = plan(table, machinery(tmp_path, backend=backend))
    kinds = list(dict.fromkeys(part.name.split()[0] for part in parts[: len(parts) // 2]))
    assert kinds[0] == "train"
    if table in ("table3", "table4"):
        assert parts[-1].name == f"{table} beside the paper's" and parts[-1].done is None
        trained = [part.name.removeprefix("train ") for part in parts if part.name.startswith("train")]
        evaluated = [part.name.removeprefix("evaluate ") for part in parts if part.name.startswith("evaluate")]
        assert trained == evaluated and len(set(trained)) == len(trained) == 11
        for part in parts:
            if part.name.startswith("evaluate"):
                assert "step by step" in part.command[part.command.index("--system") + 1]  # as in training
    else:
        assert sum(part.name.startswith("diagnose") for part in parts) == 6  # five seeds of GSM8K, one of MATH
    assert all(f"{8}" in part.command for part in parts if part.name.startswith("train"))


def test_the_commands_train_what_the_file_says(tmp_path):
    """Every variant comes back from the command's own options as the file has it."""
    file = ROOT / "llm_experiments" / "configs" / "training" / "math_qwen2.5_math_7b_g8.yaml"
    for run, part in zip(load_experiment(file), plan("table3", machinery(tmp_path)), strict=False):
        options = dict(zip(part.command[5::2], part.command[6::2], strict=False))
        assert (options["--method"], int(options["--reuse"])) == (run.method, run.updates.reuse)
        assert (options["--weights"], int(options["--seed"])) == (run.weights, run.seed)


def test_what_can_not_be_is_refused(tmp_path):
    with pytest.raises(ValueError, match="go with --backend verl"):
        machinery(tmp_path, backend="trl", nodes=2)
    with pytest.raises(ValueError, match="trl on a CPU"):
        machinery(tmp_path, gpus=0)
    with pytest.raises(ValueError, match="unknown; there are table1"):
        plan("table9", machinery(tmp_path))
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in RUN.items() if key != "diagnose"}))
    with pytest.raises(ValueError, match="no section diagnose"):
        plan("table1", machinery(tmp_path), path)
    with pytest.raises(ValueError, match="must divide its 6 steps"):
        plan("table3", machinery(tmp_path), path)


def test_parts_that_are_done_are_passed_over_and_a_failure_ends_the_queue(tmp_path):
    def part(name, code):
        script = f"import pathlib, sys; pathlib.Path({str(tmp_path / name)!r}).touch(); sys.exit({code})"
        return Part(name, (sys.executable, "-c", script), tmp_path / name)

    (tmp_path / "first").touch()
    said = []
    parts = [part("first", 9), part("second", 0), part("third", 3), part("fourth", 0)]
    assert run_parts(parts, say=said.append) == 3
    assert said[0] == "[1/4] first: done" and "go on from here" in said[-1]
    assert (tmp_path / "second").exists() and not (tmp_path / "fourth").exists()


def test_the_shipped_sharding_is_accelerates():
    commands = pytest.importorskip("accelerate.commands.config.config_args")
    found = commands.load_config_from_file(str(FSDP))
    assert found.distributed_type == "FSDP" and found.fsdp_config["fsdp_version"] == 2
    assert found.num_machines == 1


def test_a_dry_run_shows_every_command_and_runs_none(tmp_path):
    arguments = ["paper", "table4", "--gpus", "8", "--dry-run", "--runs", tmp_path / "r", "--results", tmp_path / "s"]
    result = CliRunner().invoke(cli.app, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == 0 and result.output.count("to do: ") == 23
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_whole_chain_from_one_command_killed_in_each_of_its_parts(tmp_path):
    path, data = tmp_path / "run.yaml", tmp_path / "data"
    data.mkdir()
    rows = [{"problem": f"{k}+1=", "answer": str(k + 1)} for k in range(6)]
    (data / "math500.jsonl").write_text("\n".join(map(json.dumps, rows)))
    path.write_text(yaml.safe_dump(RUN | {"variants": [{"method": "kae:bandwidth=10"}, {"method": "grpo"}]}))
    runs, results = tmp_path / "runs", tmp_path / "results"
    command = [sys.executable, "-m", "llm_experiments", "paper", "table3", "--backend", "trl", "--gpus", "0"]
    command += ["--config", str(path), "--suite", "math500:2", "--data", str(data)]
    command += ["--runs", str(runs), "--results", str(results)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    def start():
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, process_group=0)

    for sign in ("000002.json", "pools/**/*.parquet", "evaluations/**/*.parquet"):  # of training, diagnostics, answers
        process = start()
        deadline = time.monotonic() + 300
        while not list(runs.rglob(sign)):
            assert process.poll() is None and time.monotonic() < deadline, sign
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    made = {path: path.stat().st_mtime_ns for path in runs.rglob("curve.csv")}
    process = start()
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert len(made) == 2 and all(path.stat().st_mtime_ns == at for path, at in made.items())
    assert "[1/6] train small kae-bandwidth10-J1-seed-0: done" in said
    (diagnosed,) = results.glob("small-kae*")
    for name in ("value_mse", "gradient_mse"):
        assert set(pd.read_csv(diagnosed / f"{name}.csv")["step"]) == {4}
    table = pd.read_csv(results / "table3" / "table3.csv")
    assert set(table["method"]) == {"kae:bandwidth=10", "grpo"} and (table["n_seeds"] == 1).all()
    assert table.loc[table["method"] == "grpo", "paper"].notna().all()
    assert "| Method | MATH |" in said
