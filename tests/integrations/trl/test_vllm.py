"""TRL with vLLM in the same process: completions come from the weights in training, and a killed run goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm

STEPS, KILLED_AFTER, PATIENCE = 12, 4, 900
DIFFERENCE = "sampling/sampling_logp_difference/max"  # of a token's log-probability in vLLM and in training
CHECKOUT = Path(__file__).resolve().parents[3]


def keep_linear_weights() -> None:
    """Have vLLM multiply by a layer's own weights: on a CPU it packs and drops them, and TRL has none to write to."""
    import torch
    from vllm.model_executor.layers import utils

    def dispatch(layer, remove_weight):
        layer.cpu_linear = lambda x, weight, bias: torch.nn.functional.linear(x, layer.weight, bias)

    utils.dispatch_cpu_unquantized_gemm = dispatch


def train(folder: Path, checkpoint: str | None = None) -> None:
    """Train a tiny model on vLLM's completions, from the start or from a checkpoint.

    In a folder named "stale" vLLM never gets the new weights.
    """
    from trl.generation.vllm_generation import VLLMGeneration

    from kaestat import AdvantageEstimator
    from kaestat.integrations.trl import BaselineGRPOConfig, BaselineGRPOTrainer
    from llm_experiments.policies.tiny import TinySize, tiny_model, tiny_tokenizer
    from tests.helpers.tiny_trl import parity_reward, questions

    keep_linear_weights()
    if folder.name == "stale":
        VLLMGeneration.sync_weights = lambda self: None
    if not (folder / "model").is_dir():
        size = TinySize(width=128, layers=2, heads=4, key_value_heads=2, feed_forward=64, context=64)
        tokenizer = tiny_tokenizer()
        tiny_model(tokenizer, seed=0, size=size).save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
    config = BaselineGRPOConfig(
        output_dir=str(folder / "run"),
        use_vllm=True,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=0.05,
        vllm_max_model_length=64,
        num_generations=2,
        per_device_train_batch_size=8,
        max_completion_length=8,
        max_steps=STEPS,
        learning_rate=1e-3,
        logging_steps=1,
        save_steps=1,
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    trainer = BaselineGRPOTrainer(
        model=str(folder / "model"),
        reward_funcs=parity_reward,
        args=config,
        train_dataset=questions(12),
        advantage_estimator=AdvantageEstimator("kae_eb"),
        prompt_id="question_id",
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    state = {"log": trainer.state.log_history, "last_step": trainer.advantage_estimator.last_step}
    (folder / "end.json").write_text(json.dumps(state))


def run(folder: Path, checkpoint: Path | None = None, kill_at: Path | None = None) -> list[dict]:
    """The rows that a training in a process of its own logs; none if it is killed once there is a certain folder."""
    command = [sys.executable, __file__, str(folder), *([] if checkpoint is None else [str(checkpoint)])]
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT), "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=CHECKOUT, env=environment, stdout=log, stderr=log, process_group=0)
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and not (kill_at and kill_at.exists()):
            assert time.monotonic() < deadline, (folder / "log").read_text()[-3000:]
            time.sleep(0.1)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return []
    assert process.returncode == 0, (folder / "log").read_text()[-3000:]
    return [row for row in json.loads((folder / "end.json").read_text())["log"] if "reward" in row]


def test_vllm_samples_with_the_weights_in_training_and_a_killed_run_goes_on(tmp_path):
    checkpoint = tmp_path / "run" / f"checkpoint-{KILLED_AFTER}"
    run(tmp_path, kill_at=checkpoint.with_name(f"checkpoint-{KILLED_AFTER + 1}"))
    rows = run(tmp_path, checkpoint)
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert json.loads((tmp_path / "end.json").read_text())["last_step"] == STEPS - 1
    assert max(row[DIFFERENCE] for row in rows) < 0.02


def test_weights_that_do_not_arrive_are_seen(tmp_path):
    (tmp_path / "stale").mkdir()
    assert run(tmp_path / "stale")[-1][DIFFERENCE] > 0.1


if __name__ == "__main__":
    train(Path(sys.argv[1]), *sys.argv[2:])
