"""What a few real training steps take on this machine, beside what `resources.estimate` says of them.

``python -m llm_experiments.training.trl.measured_steps`` writes ``results/resources/steps.csv``: each row is a process
of its own that trains an untrained model of some shape for a few steps of TRL, every completion at its full length. One
thread, and processor time, since others may use the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainerCallback

from kaestat import AdvantageEstimator
from kaestat.core.provenance import environment, time_and_commit
from kaestat.core.storage import write_atomically
from llm_experiments.policies.model_folder import save_model
from llm_experiments.policies.tiny import tiny_tokenizer
from llm_experiments.training.config import RunConfig
from llm_experiments.training.run import TrainingRun
from llm_experiments.training.shapes import GIB
from llm_experiments.training.trl.trainer import RecordingTrainer

PARTS = ("generation", "passes", "optimizer")
STEPS = 3  # the first is not counted: what it alone needs, libraries' own tables and plans, is made in it
MIB = str(2**20)
PACKAGES = ("torch", "transformers", "trl", "accelerate")
RESULTS = Path(__file__).parents[3] / "results" / "resources"


@dataclass(frozen=True)
class Case:
    """A size that is measured.

    Attributes
    ----------
    use : {"fit", "check"}
        Whether the constants of the machine are fitted to it, or only held against it.
    hidden, layers, feed_forward, vocabulary : int
        Of a Llama model with heads of 64, a third of them for keys and values where that divides.
    prompts, group_size, micro_batch, new_tokens : int
    checkpointing : bool
    dtype : {"float32", "bfloat16"}
        Of the passes; weights are float32.
    """

    use: str
    hidden: int
    layers: int
    feed_forward: int
    vocabulary: int
    prompts: int = 8
    group_size: int = 1
    micro_batch: int = 8
    new_tokens: int = 32
    checkpointing: bool = False
    dtype: str = "float32"

    @property
    def heads(self) -> tuple[int, int]:
        """Heads, and those for keys and values."""
        heads = self.hidden // 64
        return heads, heads // 3 if heads % 3 == 0 else heads

    def run_config(self, model: Path) -> RunConfig:
        """As a training run."""
        return RunConfig(
            name="measured",
            model={"name": str(model), "chat": False, "dtype": self.dtype, "device": "cpu"},
            task={"name": "arithmetic", "n_prompts": 64, "options": {"kinds": ["add-2"], "style": "bare"}},
            sampling={"max_new_tokens": self.new_tokens},
            method="kae:bandwidth=10",
            updates={
                "steps": STEPS,
                "prompts": self.prompts,
                "group_size": self.group_size,
                "micro_batch": self.micro_batch,
                "gradient_checkpointing": self.checkpointing,
                "save_every": STEPS + 1,
            },
        )


SMOLLM2 = {"hidden": 576, "layers": 30, "feed_forward": 1536, "vocabulary": 49152}

CASES = (
    Case("fit", 192, 6, 512, 4096, prompts=16, micro_batch=16, new_tokens=64),
    Case("fit", 192, 6, 512, 4096, prompts=64, micro_batch=16, new_tokens=16),
    Case("fit", 384, 8, 1024, 8192, prompts=16, micro_batch=8, new_tokens=32),
    Case("fit", 384, 8, 1024, 8192, prompts=4, group_size=8, micro_batch=32, new_tokens=24),
    Case("fit", 768, 8, 2048, 4096, prompts=8, micro_batch=8, new_tokens=24),
    Case("fit", 768, 8, 2048, 4096, prompts=4, group_size=2, micro_batch=4, new_tokens=48),
    Case("check", 192, 12, 512, 1024, prompts=32, micro_batch=32, new_tokens=64),
    Case("check", 384, 4, 1536, 32768, prompts=16, micro_batch=16, new_tokens=24),
    Case("check", 576, 10, 1536, 8192, prompts=16, micro_batch=16, new_tokens=32),
    Case("check", 576, 10, 1536, 8192, prompts=16, micro_batch=16, new_tokens=32, checkpointing=True),
    Case("check", 576, 10, 1536, 8192, prompts=16, micro_batch=16, new_tokens=32, dtype="bfloat16"),
    Case("check", 960, 6, 2560, 8192, prompts=2, group_size=2, micro_batch=4, new_tokens=96),
    Case("check", **SMOLLM2, prompts=4, micro_batch=4, new_tokens=24),
    Case("check", **SMOLLM2, prompts=2, group_size=4, micro_batch=4, new_tokens=48),
    Case("check", **SMOLLM2, prompts=2, group_size=4, micro_batch=4, new_tokens=48, checkpointing=True),
)
"""Those of the last kind have SmolLM2-135M's shape: time and memory hang on no weight's value."""


class _Parts(TrainerCallback):
    """Seconds and peak memory of the parts of each step."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {part: [] for part in PARTS}
        self.peaks: dict[str, list[float]] = {part: [] for part in PARTS}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure what is done inside."""
        _forget_peak()
        begin = time.process_time()
        yield
        self.seconds[name].append(time.process_time() - begin)
        self.peaks[name].append(_peak())

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._update = self.part("optimizer")
        self._update.__enter__()

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._update.__exit__(None, None, None)


class MeasuredRun(TrainingRun):
    """A training run whose parts are timed, with completions of full length."""

    def measured(self) -> _Parts:
        """Train, and tell."""
        self._parts = _Parts()
        self._train(self.config.opening_estimator())
        return self._parts

    def _trainer(self, policy: Any, estimator: AdvantageEstimator, args: Any) -> RecordingTrainer:
        trainer, parts = super()._trainer(policy, estimator, args), self._parts
        trainer.generation_config.min_new_tokens = self.config.sampling.max_new_tokens
        trainer._generate_single_turn = _within(parts, "generation", trainer._generate_single_turn)
        # The loss's own beginning, without the generation that TRL does when it prepares a step's first inputs.
        trainer._prepare_inputs, prepare = (lambda inputs: inputs), trainer._prepare_inputs
        step = _within(parts, "passes", trainer.training_step)
        trainer.training_step = lambda model, inputs, *rest: step(model, prepare(inputs), *rest)
        trainer.add_callback(parts)
        return trainer


def _within(parts: _Parts, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def measured(*arguments: Any, **named: Any) -> Any:
        with parts.part(name):
            return call(*arguments, **named)

    return measured


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> float:
    """Peak of resident memory since it was last forgotten, in GiB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / GIB


def measure(case: Case, folder: Path) -> dict[str, float]:
    """Train a few steps here, in this process.

    Parameters
    ----------
    case : Case
    folder : Path
        For the model and the run.

    Returns
    -------
    dict of str to float
        ``{part}_s``, seconds of a step, the median of all but the first; ``{part}_gib``, the highest peak of memory
        above what the process had before its model was made; ``prompt_tokens``.
    """
    _train(Case(case.use, 64, 1, 64, 512, prompts=2, micro_batch=2, new_tokens=2, dtype=case.dtype), folder / "first")
    before = _peak_now()
    run, parts = _train(case, folder / "case")
    updates = case.prompts * case.group_size // case.micro_batch
    per_step = {"generation": 1, "passes": updates, "optimizer": 1}
    found: dict[str, float] = {"prompt_tokens": float(_prompt_tokens(run))}
    for part, seconds in parts.seconds.items():
        each = per_step[part]
        sums = [sum(seconds[start : start + each]) for start in range(0, len(seconds), each)]
        found[f"{part}_s"] = statistics.median(sums[1:])
        found[f"{part}_gib"] = max(parts.peaks[part]) - before
    return found


def _train(case: Case, folder: Path) -> tuple[MeasuredRun, _Parts]:
    heads, key_value = case.heads
    tokenizer = tiny_tokenizer()
    shape = LlamaConfig(
        vocab_size=case.vocabulary,
        hidden_size=case.hidden,
        intermediate_size=case.feed_forward,
        num_hidden_layers=case.layers,
        num_attention_heads=heads,
        num_key_value_heads=key_value,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    save_model(folder / "model", LlamaForCausalLM(shape), tokenizer)
    run = MeasuredRun(
        case.run_config(folder / "model"),
        runs=folder,
        progress=lambda *_: nullcontext(lambda: None),
        say=lambda _: None,
    )
    return run, run.measured()


def _peak_now() -> float:
    _forget_peak()
    return _peak()


def _prompt_tokens(run: MeasuredRun) -> int:
    tokenizer = tiny_tokenizer()
    return max(len(tokenizer(problem.prompt).input_ids) for problem in run._start.task.problems)


def flops() -> float:
    """Floating-point operations per second of a large product of matrices, the best of five."""
    square, seconds = torch.randn(2048, 2048), []
    for _ in range(5):
        begin = time.process_time()
        square @ square
        seconds.append(time.process_time() - begin)
    return 2 * 2048**3 / min(seconds)


def _apart(case: Case) -> dict[str, Any]:
    """`measure` in a process of its own, whose freed memory goes back at once, so that peaks are of what is in use."""
    settings = {"MALLOC_MMAP_THRESHOLD_": MIB, "MALLOC_TRIM_THRESHOLD_": MIB, "MALLOC_ARENA_MAX": "1"}
    settings |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    command = [sys.executable, "-m", __spec__.name, "--case", json.dumps(asdict(case))]
    ran = subprocess.run(command, env=os.environ | settings, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the table")
    arguments = parser.parse_args()
    if arguments.case is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measure(Case(**arguments.case), Path(folder)) | {"flops": flops()}))
        return
    rows = []
    for case in CASES:
        rows.append(asdict(case) | _apart(case))
        print(rows[-1], flush=True)
    write_atomically(arguments.out / "steps.csv", pd.DataFrame(rows).to_csv(index=False, float_format="%.4g"))
    origin = time_and_commit(Path(__file__).parent) | environment(PACKAGES)
    write_atomically(arguments.out / "provenance.json", json.dumps(origin, indent=1) + "\n")


if __name__ == "__main__":
    main()
