"""The parts of an experiment of the paper's, each a command of this package that goes on where it stopped."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from llm_experiments.policies.presets import prompt_style
from llm_experiments.training.config import RunConfig, run_label
from llm_experiments.training.experiment import load_experiment
from llm_experiments.training.snapshots import snapshot
from llm_experiments.training.trl.resources import check_batches

CONFIGS = Path(__file__).parents[1] / "configs"
FSDP = CONFIGS / "accelerate" / "fsdp.yaml"
OWN, ALL = "own", "all"

TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "table1": (OWN, ("gsm8k_qwen2.5_1.5b_g1", "math_qwen2.5_math_7b_g8")),
    "table2": (OWN, ("gsm8k_qwen2.5_1.5b_g1", "math_qwen2.5_math_7b_g8")),
    "table3": (ALL, ("math_qwen2.5_math_7b_g8",)),
    "table4": (ALL, ("dapo_qwen2.5_math_7b_g4",)),
}
"""Which runs of which configurations a table wants: the files' own, or all variants and seeds."""


@dataclass(frozen=True)
class Machinery:
    """What the parts run on, and where they read and write.

    Attributes
    ----------
    backend : {"trl", "verl"}
    gpus, nodes : int
        GPUs of each machine, 0 for a CPU; machines.
    runs, results : Path
    data : Path or None
        Folder of local files.
    suite : str
        What trained models are asked.
    temperature : float
        At which they answer.
    """

    backend: Literal["trl", "verl"]
    gpus: int
    nodes: int
    runs: Path
    results: Path
    data: Path | None
    suite: str = "paper"
    temperature: float = 0.6

    def __post_init__(self):
        if self.backend == "trl" and self.nodes > 1:
            raise ValueError(f"nodes = {self.nodes}: several machines go with --backend verl, over a Ray cluster.")
        if self.backend == "verl" and self.gpus < 1:
            raise ValueError("gpus = 0: verl trains on GPUs here; take --backend trl on a CPU.")

    @property
    def processes(self) -> int:
        """That train one run."""
        return max(self.gpus * self.nodes, 1)


@dataclass(frozen=True)
class Part:
    """A part of the work.

    Attributes
    ----------
    name : str
        For the user.
    command : tuple of str
    done : Path or None
        A file whose being there says that the part is done; None where it is made anew each time, in seconds.
    """

    name: str
    command: tuple[str, ...]
    done: Path | None


def plan(table: str, machinery: Machinery, config: Path | None = None) -> list[Part]:
    """What leads to a table, in order.

    Parameters
    ----------
    table : str
        One of `TABLES`.
    machinery : Machinery
    config : Path or None
        In place of the paper's configurations, to rehearse the same at another size.

    Raises
    ------
    ValueError
        If the table is unknown, a configuration wrong, or its completions do not divide among TRL's processes.
    """
    parts: list[Part] = []
    for file, wanted in training_runs(table, config).items():
        for run in wanted if machinery.backend == "trl" else ():
            check_batches(run, machinery.processes)
        parts += [_train(file, run, machinery) for run in wanted]
        parts += [_diagnose(run, machinery) for run in wanted if run.diagnose is not None]
        if TABLES[table][0] == ALL:
            parts += [_evaluate(run, machinery) for run in wanted]
            parts.append(_beside_paper(table, wanted, machinery))
    return parts


def training_runs(table: str, config: Path | None = None) -> dict[Path, list[RunConfig]]:
    """The runs that a table wants, by configuration; see `plan`."""
    if table not in TABLES:
        raise ValueError(f"table {table!r} is unknown; there are {', '.join(TABLES)}.")
    which, names = TABLES[table]
    files = [config] if config is not None else [CONFIGS / "training" / f"{name}.yaml" for name in names]
    found = {}
    for file in files:
        runs = load_experiment(file)
        found[file] = runs if which == ALL else [run for run in runs if run.diagnose is not None]
        if not found[file]:
            raise ValueError(f"{file}: has no section diagnose, which {table} comes from.")
    return found


def folder_of(run: RunConfig, machinery: Machinery) -> Path:
    """Where a run lies."""
    return machinery.runs / {"trl": "training", "verl": "verl"}[machinery.backend] / run.name / run_label(run)


def result_name(run: RunConfig) -> str:
    """Of a run's evaluation and diagnostics."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{run.name}-{run_label(run)}")


def _train(file: Path, run: RunConfig, machinery: Machinery) -> Part:
    folder = folder_of(run, machinery)
    variant = ["--method", run.method, "--seed", str(run.seed), "--reuse", str(run.updates.reuse)]
    variant += ["--weights", run.weights] + ([] if run.scale is None else ["--scale", run.scale])
    places = [*_data(machinery), "--results", str(machinery.results)]
    if machinery.backend == "verl":
        sizes = ["--gpus", str(machinery.gpus), "--nodes", str(machinery.nodes)]
        command = [*_package(), "launch-verl", str(file), *variant, *sizes, *places, "--runs", str(machinery.runs)]
    else:
        arguments = ["llm_experiments", "train", "--config", str(file), *variant, *places]
        arguments += ["--runs", str(machinery.runs)]
        launcher = [sys.executable, "-m"]
        if machinery.gpus > 1:
            launcher += ["accelerate.commands.launch", "--config_file", str(FSDP)]
            launcher += ["--num_processes", str(machinery.gpus), "-m"]
        command = [*launcher, *arguments]
    return Part(f"train {run.name} {run_label(run)}", tuple(command), folder / "curve.csv")


def _diagnose(run: RunConfig, machinery: Machinery) -> Part:
    command = [*_package(), "diagnose", "--run", str(folder_of(run, machinery)), *_data(machinery)]
    command += ["--runs", str(machinery.runs), "--results", str(machinery.results)]
    # The stages go on by themselves where they stopped; the last of them writes this.
    done = machinery.results / result_name(run) / "equal_budget.csv"
    return Part(f"diagnose {run.name} {run_label(run)}", tuple(command), done)


def _evaluate(run: RunConfig, machinery: Machinery) -> Part:
    folder, last = folder_of(run, machinery), run.updates.steps
    if machinery.backend == "verl" and last not in run.snapshot_steps:
        raise ValueError(
            f"updates.snapshot_every of {run.name} must divide its {last} steps: verl leaves no other model of the end."
        )
    model = snapshot(folder, last) if last in run.snapshot_steps else folder / "model"
    chat, system = prompt_style(run.model)
    command = [*_package(), "evaluate", "--model", str(model), "--name", result_name(run), "--suite", machinery.suite]
    command += ["--engine", run.sampling.engine, "--temperature", str(machinery.temperature)]
    command += ["--max-new-tokens", str(run.sampling.max_new_tokens), "--chat" if chat else "--no-chat"]
    command += ([] if system is None else ["--system", system]) + _data(machinery)
    command += ["--runs", str(machinery.runs), "--results", str(machinery.results)]
    done = machinery.results / "evaluations" / result_name(run) / "provenance.json"
    return Part(f"evaluate {run.name} {run_label(run)}", tuple(command), done)


def _beside_paper(table: str, runs: list[RunConfig], machinery: Machinery) -> Part:
    folders = [str(machinery.results / "evaluations" / result_name(run)) for run in runs]
    command = [sys.executable, "-m", "paper_figures.training.beside_paper", table, *folders]
    for run in runs:
        command += ["--variant", f"{run.method}|{run.updates.reuse}"]
    command += ["--out", str(machinery.results / table)]
    return Part(f"{table} beside the paper's", tuple(command), None)


def _package() -> list[str]:
    return [sys.executable, "-m", "llm_experiments"]


def _data(machinery: Machinery) -> list[str]:
    return [] if machinery.data is None else ["--data", str(machinery.data)]
