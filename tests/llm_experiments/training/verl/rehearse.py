"""The paper's whole chain on verl without a GPU, from one command to its tables and figures: ``make rehearse-verl``.

    PYTHONPATH=. python tests/llm_experiments/training/verl/rehearse.py [FOLDER]

``python -m llm_experiments paper all`` trains, diagnoses and evaluates a made model. It is killed with all its
processes in a training, in the diagnostics and in the evaluation, and goes on each time. The launch's options are its
own; those added are in `OPTIONS`, each for want of a GPU or of cores. Outside of the suite: it takes half an hour.
"""

import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from llm_experiments.config import PretrainingConfig, TaskConfig
from llm_experiments.policies.model_folder import save_model
from llm_experiments.policies.tiny import END, PAD, pretrain
from llm_experiments.tasks import pretraining_examples

CHECKOUT = Path(__file__).resolve().parents[4]
ON_CPU = CHECKOUT / "tests" / "integrations" / "verl" / "on_cpu"
# By their own names: verl and TransferQueue install a package called tests, which hides our folder of that name.
sys.path += [str(CHECKOUT / "tests" / "helpers"), str(ON_CPU)]
from check import ENVIRONMENT  # noqa: E402
from killed_chain import run_killed  # noqa: E402
from prepare import SIZE  # noqa: E402

ANSWERS = "{% for m in messages %}{{ m['content'] }}{% if m['role'] == 'assistant' %}" + END + "{% endif %}{% endfor %}"

TASK = {"name": "arithmetic", "options": {"kinds": ["add-1"], "style": "bare"}}
RUN = {
    "name": "small",
    "task": TASK | {"n_prompts": 16},
    "sampling": {"engine": "vllm", "temperature": 1.0, "max_new_tokens": 4, "batch_size": 64},
    "method": "kae:bandwidth=10",
    "updates": {
        "steps": 6, "prompts": 8, "ppo_prompts": 4, "group_size": 2, "reuse": 2, "learning_rate": 1e-4,
        "micro_batch": 4, "save_every": 2, "keep_checkpoints": 1, "snapshot_every": 6,
    },
    "test": {"task": TASK | {"n_prompts": 20}, "every": 3, "temperature": 0.6},
    "diagnose": {
        "diagnostic": {
            "steps": [4], "history": 2, "group_size": 2, "n_oracle": 8, "n_estimation": 4, "n_history": 4,
            "repeats": 5, "n_boot": 20, "bandwidths": [5], "kernels": ["triangular"],
        },
        "gradient": {"repeats": 5},
    },
    "report_to": ["tensorboard"],
    "variants": [{"method": "kae:bandwidth=10"}, {"method": "grpo", "reuse": 1}],
}  # fmt: skip
OPTIONS = (
    "trainer.device=cpu",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.rollout.enforce_eager=True",
    "+actor_rollout_ref.rollout.enable_sleep_mode=False",
    "actor_rollout_ref.rollout.free_cache_engine=False",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "reward.num_workers=2",
    "data.dataloader_num_workers=0",
    "ray_kwargs.ray_init.num_cpus=32",  # the transfer queue hangs where Ray has too few
    "+ray_kwargs.ray_init.num_gpus=1",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
)
SIGNS = ("small/kae-*/rollouts/4.jsonl", "pools/*/*.parquet", "evaluations/*/*/*/*.parquet")
PATIENCE = 3600.0


def command(folder: Path) -> list[str]:
    """The paper's own, with a configuration, problems and places of the rehearsal."""
    given = [sys.executable, "-m", "llm_experiments", "paper", "all", "--backend", "verl", "--gpus", "1"]
    given += ["--config", str(folder / "run.yaml"), "--suite", "math500:2", "--data", str(folder / "data")]
    given += ["--runs", str(folder / "runs"), "--results", str(folder / "results")]
    return given + [part for option in OPTIONS for part in ("--option", option)]


def write_taught_model(folder: Path, task: dict) -> None:
    """One that answers a task's questions now and then, and whose template adds nothing to them.

    Its answers end at the token that closes a turn of the template; its settings and its tokenizer name another, as
    those of some base models do.
    """
    taught = PretrainingConfig(steps=200, batch_size=32)
    size = replace(SIZE, context=2048)  # the prompts of the paper's runs have up to 1,024 tokens
    model, tokenizer = pretrain(
        pretraining_examples(TaskConfig(**task), taught, seed=0, exclude=[]), taught, 0, size=size
    )
    tokenizer.chat_template = ANSWERS
    tokenizer.eos_token = PAD
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    save_model(folder, model, tokenizer)


def prepare(folder: Path) -> None:
    """The model, the configuration and the problems of the evaluation."""
    write_taught_model(folder / "model", TASK)
    model = {"name": str(folder / "model"), "dtype": "bfloat16"}
    (folder / "run.yaml").write_text(yaml.safe_dump(RUN | {"model": model}))
    (folder / "data").mkdir()
    rows = [{"problem": f"{k}+1=", "answer": str(k + 1)} for k in range(6)]
    (folder / "data" / "math500.jsonl").write_text("\n".join(map(json.dumps, rows)))


def check(folder: Path, said: str) -> None:
    """That every artefact is there, made of what was trained.

    Raises
    ------
    AssertionError
        If one is missing, or a table lacks what it should show.
    """
    runs, results = folder / "runs", folder / "results"
    for label in ("kae-bandwidth10-J2-seed-0", "grpo-J1-seed-0"):
        run = runs / "verl" / "small" / label
        assert len(pd.read_csv(run / "curve.csv")) == RUN["updates"]["steps"], f"{run}: steps are missing"
        assert pd.read_csv(run / "test.csv")["step"].tolist() == [0, 3, 6], f"{run}: tests are missing"
        assert (run / "snapshots" / "step-6" / "model.safetensors").is_file()
        assert not (run / "checkpoints").exists()
        events = EventAccumulator(str(run / "tensorboard")).Reload()
        shortest = [each.value for each in events.Scalars("response_length/min")]
        assert min(shortest) < RUN["sampling"]["max_new_tokens"], "no rollout ended at its end token"
    rewards = pd.read_csv(runs / "verl" / "small" / "kae-bandwidth10-J2-seed-0" / "curve.csv")["mean_reward"]
    assert rewards.mean() > 0, "nothing was right"  # in one step of 16 completions that happens
    for number in (1, 2):
        table = pd.read_csv(results / f"table{number}" / f"table{number}.csv")
        assert set(table["prompts"]) == {"sticky", "random"} and set(table["step"]) == {4}
        assert table["ours"].notna().any()
        assert table["ours"].between(table["low"], table["high"]).all(), f"table {number}: an interval"
    for number in (3, 4):
        table = pd.read_csv(results / f"table{number}" / f"table{number}.csv")
        assert set(table["method"]) == {"kae:bandwidth=10", "grpo"} and table["paper"].notna().all()
    for artefact in ("figure1", "single-stream", "ablation"):
        assert list((results / artefact).rglob(f"{artefact}_small.png")), f"{artefact} is missing"
    assert "| Method | MATH |" in said


def main() -> None:
    """Rehearse in a folder that is given, or in a new one."""
    folder = Path(sys.argv[1]).resolve() if sys.argv[1:] else Path(tempfile.mkdtemp(prefix="rehearse-verl-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"in {folder}", flush=True)
    prepare(folder)
    path = os.pathsep.join([str(ON_CPU), str(CHECKOUT)])
    environment = os.environ | ENVIRONMENT | {"VERL_USE_EXTERNAL_MODULES": "cpu_platform", "PYTHONPATH": path}
    began = time.monotonic()
    with (folder / "log").open("w") as log:
        options = {"cwd": CHECKOUT, "env": environment, "stderr": log}
        said, killed = run_killed(command(folder), folder / "runs", SIGNS, patience=PATIENCE, **options)
    (folder / "said").write_text(said)
    check(folder, said)
    trained = {path: at for path, at in killed[-1].items() if path.name == "curve.csv"}
    assert len(trained) == 2 and all(path.stat().st_mtime_ns == at for path, at in trained.items())
    print("\n".join(line for line in said.splitlines() if line.startswith("[")))
    print(f"seven artefacts after {len(killed)} kills, in {(time.monotonic() - began) / 60:.0f} min", flush=True)


if __name__ == "__main__":
    main()
