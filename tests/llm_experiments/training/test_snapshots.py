"""Snapshots of runs, what runs take of the disk, and the way from a run to the diagnostics of its own policies."""

import json
from collections import namedtuple
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from llm_experiments import cli
from llm_experiments.config import checked
from llm_experiments.tasks.base import Problem
from llm_experiments.training.config import RunConfig
from llm_experiments.training.diagnostics import diagnostics_of, minibatch
from llm_experiments.training.disk import check_disk, disk_use
from llm_experiments.training.experiment import load_experiment
from llm_experiments.training.identity import IDENTITY, identity
from llm_experiments.training.shapes import GIB, SHAPES
from llm_experiments.training.snapshots import snapshot, snapshots
from llm_experiments.training.verl.kept import LATEST, Kept
from llm_experiments.training.verl.launch import verl_run_config

CONFIGS = Path(cli.__file__).parent / "configs" / "training"
RUN = {
    "name": "small",
    "model": {"name": "tiny", "chat": False, "pretraining": {"steps": 200, "batch_size": 32, "width": 32, "layers": 2}},
    "task": {"name": "arithmetic", "n_prompts": 8, "options": {"kinds": ["add-1"], "style": "bare"}},
    "sampling": {"temperature": 1.0, "max_new_tokens": 4, "batch_size": 64},
    "method": "kae:bandwidth=10",
    "updates": {
        "steps": 6, "prompts": 8, "ppo_prompts": 4, "group_size": 2, "learning_rate": 1e-3, "micro_batch": 8,
        "save_every": 4, "keep_checkpoints": 1, "snapshot_every": 5,
    },
    "diagnose": {
        "diagnostic": {
            "steps": [4], "history": 2, "group_size": 2, "n_oracle": 8, "n_estimation": 4, "n_history": 4,
            "repeats": 5, "n_boot": 20, "bandwidths": [5], "kernels": ["triangular"],
        },
        "gradient": {"repeats": 5},
    },
}  # fmt: skip


def changed(**changes) -> RunConfig:
    updates = RUN["updates"] | changes.pop("updates", {})
    return checked(RunConfig, "small", RUN | changes | {"updates": updates})


def test_snapshots_are_those_asked_for_and_those_that_the_diagnostics_need():
    assert changed().snapshot_steps == (2, 3, 4, 5)
    assert changed(diagnose=None, updates={"snapshot_every": 2}).snapshot_steps == (2, 4, 6)
    assert changed(diagnose=None, updates={"snapshot_every": None}).snapshot_steps == ()


def test_diagnostics_belong_to_the_files_own_run_alone(tmp_path):
    path = tmp_path / "run.yaml"
    variants = [{"method": "kae:bandwidth=10"}, {"method": "rloo"}, {"method": "kae:bandwidth=10", "reuse": 2}]
    path.write_text(yaml.safe_dump(RUN | {"variants": variants, "seeds": [0, 1]}))
    runs = load_experiment(path)
    assert [run.diagnose is not None for run in runs] == [True, False, False] * 2
    assert runs[1].snapshot_steps == (5,)
    assert verl_run_config(path).diagnose is not None and verl_run_config(path, method="rloo").diagnose is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"updates": {"steps": 3}}, "step 4 of a run"),
        ({"diagnose": {"diagnostic": RUN["diagnose"]["diagnostic"] | {"steps": [2]}}}, "no snapshot of the model"),
        ({"diagnose": RUN["diagnose"] | {"n_prompts": 4}}, "the same; leave one"),
    ],
)
def test_snapshots_that_can_not_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        changed(**changes)


def test_the_disk_is_counted_from_weights_and_what_stays_of_them():
    run = verl_run_config(CONFIGS / "math_qwen2.5_math_7b_g8.yaml")
    shape = SHAPES["qwen2.5-math-7b"]
    weights = 7_615_616_512
    assert len(run.snapshot_steps) == 19
    on_trl, on_verl = (disk_use(run, shape, backend=backend) for backend in ("trl", "verl"))
    assert on_trl.checkpoints == 3 * 12 * weights and on_trl.snapshots == 19 * 2 * weights
    assert on_trl.model == 4 * weights
    assert on_verl.checkpoints == 3 * 16 * weights and sum(on_verl) < 700 * GIB
    everything = run.model_copy(
        update={"updates": run.updates.model_copy(update={"keep_checkpoints": None, "save_every": 5})}
    )
    assert disk_use(everything, shape, backend="trl").checkpoints == 40 * 12 * weights


def test_a_run_that_does_not_fit_on_the_disk_is_refused_with_the_remedy(tmp_path, monkeypatch):
    use = disk_use(verl_run_config(CONFIGS / "math_qwen2.5_math_7b_g8.yaml"), SHAPES["qwen2.5-math-7b"], backend="trl")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(0, 0, sum(use) + 1))
    assert "Takes 553" in check_disk(use, tmp_path / "not" / "there")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(0, 0, sum(use) - 100))
    with pytest.raises(ValueError, match=r"553.* GiB of disk .* Make room"):
        check_disk(use, tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint").write_bytes(b"0" * 200)  # what is there already is not needed again
    check_disk(use, tmp_path / "run")


def verl_checkpoint(folder: Path, step: int, value: float) -> None:
    model = folder / f"global_step_{step}" / "actor" / "huggingface"
    model.mkdir(parents=True, exist_ok=True)
    save_file({"weight": torch.full((2,), value)}, model / "model.safetensors")
    (model / "config.json").write_text('{"dtype": "float32"}')
    (folder / LATEST).write_text(str(step))


def test_verl_saves_at_each_due_step_and_at_no_other_and_keeps_the_last():
    kept = Kept(Path("/none"), steps=(6, 7, 8, 30), save_every=5, keep_checkpoints=2, dtype="bfloat16")

    def saved(after):
        found, frequency = [], kept.next_due(after)
        for step in range(after + 1, 36):
            if step % frequency == 0:  # verl's own rule
                found.append(step)
                frequency = kept.next_due(step)
        return found

    assert saved(0) == [5, 6, 7, 8, 10, 15, 20, 25, 30, 35]
    assert saved(7) == saved(0)[3:]


def test_snapshots_stay_and_old_checkpoints_of_verl_go(tmp_path):
    kept = Kept(tmp_path / "checkpoints", steps=(2, 3), save_every=2, keep_checkpoints=2, dtype="bfloat16")
    verl_checkpoint(kept.checkpoints, 99, 0.0)  # begun by a run that was killed
    (kept.checkpoints / LATEST).unlink()
    assert kept.latest() == 0
    for step in (2, 3, 4, 6):
        verl_checkpoint(kept.checkpoints, step, float(step))
        kept.keep(step)
        kept.keep(step)  # once more after a kill
    assert sorted(path.name for path in kept.checkpoints.glob("global*")) == [f"global_step_{k}" for k in (4, 6, 99)]
    assert list(snapshots(tmp_path)) == [2, 3] and kept.latest() == 6
    weight = load_file(snapshot(tmp_path, 3) / "model.safetensors")["weight"]
    assert weight.dtype == torch.bfloat16 and weight.tolist() == [3.0, 3.0]
    assert json.loads((snapshot(tmp_path, 3) / "config.json").read_text())["dtype"] == "bfloat16"


def command(*arguments) -> None:
    result = CliRunner().invoke(cli.app, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output


def test_diagnostics_take_what_the_run_had(tmp_path):
    run = changed(seed=3)
    (tmp_path / IDENTITY).write_text(json.dumps(identity(run)))
    with pytest.raises(FileNotFoundError, match="lacks the snapshots of steps 2, 3, 4"):
        diagnostics_of(tmp_path)
    for step in (2, 3, 4):
        snapshot(tmp_path, step).mkdir(parents=True)
    _, parts = diagnostics_of(tmp_path)
    found = parts[None]
    assert (found.seed, found.task, found.sampling) == (3, run.task, run.sampling)
    assert found.checkpoints == str(tmp_path / "snapshots" / "step-{step}") and not found.model.chat
    (tmp_path / IDENTITY).write_text(json.dumps(identity(changed(diagnose=None))))
    with pytest.raises(ValueError, match="no section diagnose"):
        diagnostics_of(tmp_path)
    with pytest.raises(FileNotFoundError, match="folder of a training run"):
        diagnostics_of(tmp_path / "none")


@pytest.mark.slow
def test_a_run_with_reuse_is_diagnosed_on_the_minibatches_that_it_trained_on(tmp_path):
    diagnostic = RUN["diagnose"]["diagnostic"] | {"steps": [3, 6], "history": 2}
    updates = RUN["updates"] | {"prompts": 4, "reuse": 3}
    path = tmp_path / "run.yaml"
    path.write_text(
        yaml.safe_dump(RUN | {"updates": updates, "diagnose": RUN["diagnose"] | {"diagnostic": diagnostic}})
    )
    places = ["--runs", tmp_path / "runs", "--results", tmp_path / "results"]
    command("train", "--config", path, *places)
    run = tmp_path / "runs" / "training" / "small" / "kae-bandwidth10-J3-seed-0"
    assert list(snapshots(run)) == [1, 2, 3, 4, 5, 6]
    assert [each.name for each in (run / "checkpoints").glob("checkpoint-*")] == ["checkpoint-6"]  # optimizer updates
    first, later = (load_file(path / "model.safetensors") for path in (snapshots(run)[2], snapshots(run)[4]))
    assert any(not np.array_equal(first[name], later[name]) for name in first)
    command("diagnose", "--run", run, *places)
    name, parts = diagnostics_of(run)
    frame = pd.read_csv(run / "rewards.csv")
    for step, part in parts.items():
        visited = frame[frame["step"].between(step - 3, step - 1)].groupby("step")["prompt"].agg(set)
        assert len(visited) == 3 and all(set(part.problem_ids) == each for each in visited)
        pools = tmp_path / "runs" / part.name / "pools" / "manifest.json"
        assert json.loads(pools.read_text())["identity"]["problem_ids"] == list(part.problem_ids)
    assert set(parts[3].problem_ids).isdisjoint(parts[6].problem_ids)
    value, gradient = (pd.read_csv(tmp_path / "results" / name / f"{each}_mse.csv") for each in ("value", "gradient"))
    assert set(value["step"]) == set(gradient["step"]) == {3, 6} and {"kae", "grpo"} <= set(value["method"])
    assert set(value["n_prompts"]) == {4}
    command("diagnose", "--run", run, "--prompts", "random", *places)
    random = pd.read_csv(tmp_path / "results" / f"{name}-random" / "value_mse.csv")
    assert set(random["n_prompts"]) == {8}


def test_a_minibatch_that_verl_wrote_out_is_found_by_its_problems(tmp_path):
    problems = [Problem("a", "Add 1.", "2"), Problem("b", "Add 1. Then double.", "4"), Problem("c", "Halve.", "1")]
    rows = [{"input": f"<user>{problems[k].prompt}<end>", "score": 1.0} for k in (1, 1, 0)]
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "5.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert minibatch(tmp_path, 4, problems) == ["b", "a"]
    with pytest.raises(ValueError, match="contains no problem"):
        minibatch(tmp_path, 4, problems[2:])
    with pytest.raises(FileNotFoundError, match="--prompts random"):
        minibatch(tmp_path, 5, problems)
