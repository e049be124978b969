"""From one command to the tables: what is run, that it goes on where it was killed, and that the frameworks take it."""

import json
import os
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from llm_experiments import cli
from llm_experiments.paper.command import run_parts
from llm_experiments.paper.plan import (
    ARTEFACTS,
    CONFIGS,
    FSDP,
    Machinery,
    Part,
    folder_of,
    plan,
    reached,
    training_runs,
)
from llm_experiments.training.config import result_name
from llm_experiments.training.experiment import load_experiment
from llm_experiments.training.identity import IDENTITY, identity
from tests.helpers.killed_chain import run_killed
from tests.llm_experiments.training.test_snapshots import RUN

UNREACHED = "ablation", "trl"  # tests of sharded weights
ROOT = Path(cli.__file__).parents[1]


def machinery(tmp_path, **options) -> Machinery:
    settings = {"backend": "verl", "gpus": 8, "nodes": 1, "data": None} | options
    return Machinery(runs=tmp_path / "runs", results=tmp_path / "results", **settings)


@pytest.mark.parametrize(
    ("artefact", "backend"), [(name, on) for name in ARTEFACTS for on in ("trl", "verl") if (name, on) != UNREACHED]
)
def test_every_artefact_has_a_plan_that_ends_in_it(artefact, backend, tmp_path):
    parts = plan(artefact, machinery(tmp_path, backend=backend))
    kinds = [part.name.split()[0] for part in parts]
    measured = {"diagnosed": "diagnose", "evaluated": "evaluate"}.get(ARTEFACTS[artefact].measured)
    n_trained = kinds.count("train")
    assert kinds == ["train"] * n_trained + [measured] * (len(kinds) - n_trained - 1) + [artefact]
    assert parts[-1].done is None and artefact in parts[-1].command
    assert all("8" in part.command for part in parts if part.alone and part.done is not None)
    for part in parts:
        if part.name.startswith("evaluate"):
            assert "step by step" in part.command[part.command.index("--system") + 1]  # as in training
            assert int(part.command[part.command.index("--batch-size") + 1]) >= 256


def test_on_trl_only_what_does_not_fit_on_one_gpu_is_sharded_and_what_is_sharded_makes_no_tests(tmp_path):
    trl = machinery(tmp_path, backend="trl")
    for artefact in ("single-stream", "figure1", "table3"):
        for part in plan(artefact, trl):
            if part.name.startswith("train"):
                assert (str(FSDP) in part.command) == ("7b" in part.name)
                assert part.command[part.command.index("-m", 3) - 1] == "8"
    with pytest.raises(ValueError, match=r"ablation: model qwen2.5-math-7b is sharded.*--backend verl"):
        plan("ablation", trl)
    names, (left_out,) = reached("all", trl)
    assert names == [name for name in ARTEFACTS if name != "ablation"] and "--backend verl" in left_out
    made = {part.command[part.command.index("-m") + 2] for part in plan("all", trl) if "beside" in part.name}
    assert made == set(names)
    assert reached("all", machinery(tmp_path)) == (list(ARTEFACTS), [])
    assert reached("all", machinery(tmp_path, backend="trl", gpus=1)) == (list(ARTEFACTS), [])


def test_the_papers_runs_are_the_default_and_all_variants_are_an_option(tmp_path):
    def trained(artefact, **options):
        return sum(part.name.startswith("train") for part in plan(artefact, machinery(tmp_path, **options)))

    counts = {artefact: trained(artefact) for artefact in ARTEFACTS}
    # 15 + 3 of the single stream: three variants with five seeds on GSM8K, with one on MATH.
    assert counts == {
        "table1": 2, "table2": 2, "table3": 4, "table4": 4, "figure1": 3, "single-stream": 18, "ablation": 2,
    }  # fmt: skip
    assert trained("table3", all_variants=True) == 11
    # Table 1's run of MATH is Table 3's and the ablation's, that of GSM8K one of the single stream's.
    assert trained("all") == 4 + 4 + 3 + 18 + 1


def test_the_commands_train_what_the_file_says(tmp_path):
    """Every variant comes back from the command's own options as the file has it."""
    file = ROOT / "llm_experiments" / "configs" / "training" / "math_qwen2.5_math_7b_g8.yaml"
    for run, part in zip(load_experiment(file), plan("table3", machinery(tmp_path, all_variants=True)), strict=False):
        options = dict(zip(part.command[5::2], part.command[6::2], strict=False))
        assert (options["--method"], int(options["--reuse"])) == (run.method, run.updates.reuse)
        assert (options["--weights"], int(options["--seed"])) == (run.weights, run.seed)


def test_tables_1_and_2_show_the_papers_prompts_and_random_ones(tmp_path):
    parts = plan("table1", machinery(tmp_path))
    asked = [part.command[part.command.index("--prompts") + 1] for part in parts if part.name.startswith("diagnose")]
    assert asked == ["sticky", "random"] * 2
    folders = [Path(each).name for each in parts[-1].command if Path(each).parent == tmp_path / "results"][:-1]
    assert folders == [part.done.parent.name for part in parts if part.name.startswith("diagnose")]
    assert [name.endswith("-random") for name in folders] == [False, True] * 2


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
        plan("table1", machinery(tmp_path, config=path))
    with pytest.raises(ValueError, match="must divide its 6 steps"):
        plan("table3", machinery(tmp_path, config=path))


def test_parts_that_are_done_are_passed_over_and_a_failure_ends_the_queue(tmp_path):
    def part(name, code):
        script = f"import pathlib, sys; pathlib.Path({str(tmp_path / name)!r}).touch(); sys.exit({code})"
        return Part(name, (sys.executable, "-c", script), tmp_path / name)

    (tmp_path / "first").touch()
    said = []
    parts = [part("first", 9), part("second", 0), part("third", 3), part("fourth", 0)]
    assert run_parts(parts, gpus=1, say=said.append) == 3
    assert said[0] == "[1/4] first: done" and "go on from here" in said[-1]
    assert (tmp_path / "second").exists() and not (tmp_path / "fourth").exists()


@pytest.mark.parametrize("backend", ["trl", "verl"])
def test_results_of_other_settings_do_not_count_as_done(tmp_path, backend):
    """A run that is done was passed over unasked, with the tables of the settings it was trained with."""
    file = tmp_path / "mine.yaml"
    file.write_text((CONFIGS / "training" / "math_qwen2.5_math_7b_g8.yaml").read_text())
    places = machinery(tmp_path, backend=backend, suite="gsm8k", config=file)
    run = training_runs("table3", places)[file][0]
    folder, evaluation = folder_of(run, places), places.results / "evaluations" / result_name(run)
    for each in (folder, evaluation):
        each.mkdir(parents=True)
    (folder / IDENTITY).write_text(json.dumps(identity(run) | ({"processes": 8} if backend == "verl" else {})))
    for suite in ("gsm8k", "paper"):
        (evaluation / "provenance.json").write_text(json.dumps({"config": {"suite": suite}}))
        done = next(part.done for part in plan("table3", places) if part.name.startswith("evaluate"))
        assert (done is None) == (suite == "paper")
    file.write_text(file.read_text().replace("learning_rate: 1.0e-6", "learning_rate: 2.0e-6"))
    with pytest.raises(ValueError, match=r"holds a run with other settings \(updates\)"):
        plan("table3", places)


def test_parts_for_one_gpu_run_side_by_side_each_on_its_own(tmp_path):
    def part(name, alone):
        # Those of one GPU wait for each other: one after the other they would never end.
        wait = "" if alone else "while len(list(folder.glob('one-*'))) < 2: time.sleep(.01)"
        script = (
            f"import os, pathlib, time\nfolder = pathlib.Path({str(tmp_path)!r})\n"
            f"(folder / {name!r}).write_text(os.environ.get('CUDA_VISIBLE_DEVICES', 'all'))\n{wait}"
        )
        return Part(name, (sys.executable, "-c", script), None, spent=tmp_path / f"spent-{name}", alone=alone)

    parts = [part("first", True), part("one-a", False), part("one-b", False), part("last", True)]
    for each in parts:
        each.spent.mkdir()
    said = []
    assert run_parts(parts, gpus=2, say=said.append) == 0
    seen = {name: (tmp_path / name).read_text() for name in ("first", "one-a", "one-b", "last")}
    assert seen == {"first": "all", "one-a": "0", "one-b": "1", "last": "all"}
    assert said.index("[4/4] last") > max(k for k, line in enumerate(said) if "one-" in line)
    assert not any(each.spent.exists() for each in parts)


def test_a_dry_run_shows_every_command_and_runs_none(tmp_path):
    arguments = ["paper", "table4", "--gpus", "8", "--dry-run", "--runs", tmp_path / "r", "--results", tmp_path / "s"]
    result = CliRunner().invoke(cli.app, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == 0 and result.output.count("to do: ") == 9 and "Makes table4." in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_whole_chain_from_one_command_killed_in_each_of_its_parts(tmp_path):
    path, data = tmp_path / "run.yaml", tmp_path / "data"
    data.mkdir()
    rows = [{"problem": f"{k}+1=", "answer": str(k + 1)} for k in range(6)]
    (data / "math500.jsonl").write_text("\n".join(map(json.dumps, rows)))
    test = {"task": RUN["task"] | {"n_prompts": 20}, "every": 3}
    variants = [{"method": "kae:bandwidth=10"}, {"method": "grpo", "reuse": 1}]
    updates = RUN["updates"] | {"prompts": 4, "reuse": 2}
    path.write_text(yaml.safe_dump(RUN | {"test": test, "variants": variants, "updates": updates}))
    runs, results = tmp_path / "runs", tmp_path / "results"
    command = [sys.executable, "-m", "llm_experiments", "paper", "all", "--backend", "trl", "--gpus", "0"]
    command += ["--config", str(path), "--suite", "math500:2", "--data", str(data)]
    command += ["--runs", str(runs), "--results", str(results)]
    signs = ("small/*/records/000002.json", "pools/*/*.parquet", "evaluations/*/*/*/*.parquet")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    said, killed = run_killed(command, runs, signs, patience=300, cwd=ROOT, env=environment)
    made = {path: at for path, at in killed[-1].items() if path.name == "curve.csv"}
    assert len(made) == 2 and all(path.stat().st_mtime_ns == at for path, at in made.items())
    assert "[1/13] train small kae-bandwidth10-J2-seed-0: done" in said
    assert not list(runs.rglob("checkpoints")) and list(runs.rglob("snapshots"))
    for diagnosed in results.glob("small-kae*"):
        for name in ("value_mse", "gradient_mse"):
            assert set(pd.read_csv(diagnosed / f"{name}.csv")["step"]) == {4}
    for name in ("table1", "table2"):
        assert set(pd.read_csv(results / name / f"{name}.csv")["prompts"]) == {"sticky", "random"}
    table = pd.read_csv(results / "table3" / "table3.csv")
    assert set(table["method"]) == {"kae:bandwidth=10", "grpo"} and (table["n_seeds"] == 1).all()
    assert table["paper"].notna().all()
    assert "| Method | MATH |" in said
    made = {path.relative_to(results).as_posix() for path in results.rglob("*") if path.parent.name != "tables"}
    assert {"table1/table1.csv", "table2/table2.csv", "table3/table3.csv", "table4/table4.csv"} <= made
    for artefact in ("figure1", "single-stream", "ablation"):
        assert list((results / artefact).rglob(f"{artefact}_small.png")), sorted(made)
