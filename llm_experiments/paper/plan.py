"""The parts of an experiment of the paper's, each a command of this package that goes on where it stopped."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kaestat.baselines.registry import parse_method
from llm_experiments.policies.presets import prompt_style
from llm_experiments.training.config import RunConfig, result_name, run_label
from llm_experiments.training.diagnostics import Prompts, diagnosis_name, prompts_of
from llm_experiments.training.experiment import load_experiment
from llm_experiments.training.identity import IDENTITY, identity, refuse_others
from llm_experiments.training.memory import GPU_GIB, device_gib
from llm_experiments.training.shapes import shape_of
from llm_experiments.training.snapshots import snapshot

CONFIGS = Path(__file__).parents[1] / "configs"
FSDP = CONFIGS / "accelerate" / "fsdp.yaml"
Measured = Literal["diagnosed", "evaluated", "tested"]


@dataclass(frozen=True)
class Artefact:
    """A table or figure of the paper.

    files: From configurations to the runs that the paper has of each: methods without parameters, and reuse.
    measured ({"diagnosed", "evaluated", "tested"}): What is done with the trained policies: their values and gradients
        compared, the whole suite asked of the last, or nothing beyond the tests along the run.
    """

    files: dict[str, tuple[tuple[str, int], ...]]
    measured: Measured


DIAGNOSED = {"gsm8k_qwen2.5_1.5b_g1": (("kae", 10),), "math_qwen2.5_math_7b_g8": (("kae", 10),)}
SINGLE_STREAM = (("kae", 10), ("none", 1), ("none", 10))
ARTEFACTS = {
    "table1": Artefact(DIAGNOSED, "diagnosed"),
    "table2": Artefact(DIAGNOSED, "diagnosed"),
    "table3": Artefact(
        {"math_qwen2.5_math_7b_g8": (("kae", 10), ("grpo", 1), ("dr_grpo", 1), ("gpg", 1))}, "evaluated"
    ),
    "table4": Artefact({"dapo_qwen2.5_math_7b_g4": (("kae", 8), ("grpo", 1), ("dr_grpo", 1), ("gpg", 1))}, "evaluated"),
    "figure1": Artefact({"one_shot_qwen2.5_math_1.5b": (("kae_stream", 1), ("pooled", 1), ("grpo", 1))}, "tested"),
    "single-stream": Artefact(
        {"gsm8k_qwen2.5_1.5b_g1": SINGLE_STREAM, "math_qwen2.5_math_1.5b_g1": SINGLE_STREAM}, "tested"
    ),
    "ablation": Artefact({"math_qwen2.5_math_7b_g8": (("kae", 10), ("grpo", 10))}, "tested"),
}
ALL = "all"
SEQUENCES = 256  # sampled at once by vLLM in an evaluation


@dataclass(frozen=True)
class Machinery:
    """What the parts run on, and where they read and write.

    gpus, nodes: GPUs of each machine, 0 for a CPU; machines.
    data: Folder of local files.
    suite: What trained models are asked.
    options: Further options of verl, ``key=value``, for every run.
    config: In place of the paper's configurations, to rehearse the same at another size with all of its variants.
    all_variants: All variants and seeds of the configurations, and not the paper's alone.
    """

    backend: Literal["trl", "verl"]
    gpus: int
    nodes: int
    runs: Path
    results: Path
    data: Path | None
    suite: str = "paper"
    options: tuple[str, ...] = ()
    config: Path | None = None
    all_variants: bool = False

    def __post_init__(self):
        if self.backend == "trl" and self.nodes > 1:
            raise ValueError(f"nodes = {self.nodes}: several machines go with --backend verl, over a Ray cluster.")
        if self.backend == "trl" and self.options:
            raise ValueError(f"option {self.options[0]}: options are verl's, and go with --backend verl.")
        if self.backend == "verl" and self.gpus < 1:
            raise ValueError("gpus = 0: verl trains on GPUs here; take --backend trl on a CPU.")

    @property
    def processes(self) -> int:
        """That train one run."""
        return max(self.gpus * self.nodes, 1)


@dataclass(frozen=True)
class Part:
    """A part of the work.

    name: For the user.
    done: A file whose being there says that the part is done; None where it is made anew each time, in seconds.
    spent: Folder that nobody needs once the part is done: checkpoints to go on from.
    alone: Whether it takes all GPUs. Parts that take one each run side by side.
    """

    name: str
    command: tuple[str, ...]
    done: Path | None
    spent: Path | None = None
    alone: bool = True


def plan(artefact: str, machinery: Machinery) -> list[Part]:
    """What leads to a table or figure, in order.

    artefact: One of `ARTEFACTS`, or ``"all"``.
    Raises ValueError if the artefact is unknown, a configuration wrong, its completions do not divide among TRL's
        processes, or it needs tests of sharded weights on TRL; ``"all"`` leaves such artefacts out (`reached`).
    """
    parts: list[Part] = []
    for name in reached(artefact, machinery)[0]:
        parts += [part for part in _plan(name, machinery) if part not in parts]
    return parts


def reached(artefact: str, machinery: Machinery) -> tuple[list[str], list[str]]:
    """The names of the artefacts that a plan makes, and a line for each of ``"all"`` that it leaves out.

    Raises ValueError if a single artefact cannot be made, and as `plan`.
    """
    names, left_out = [], []
    for name in ARTEFACTS if artefact == ALL else (artefact,):
        runs = [run for runs in training_runs(name, machinery).values() for run in runs]
        untested = [why for run in runs if (why := _why_untested(run, machinery))]
        if ARTEFACTS[name].measured != "tested" or not untested:
            names.append(name)
        elif artefact == ALL:
            left_out.append(f"{name}: {untested[0]}")
        else:
            raise ValueError(f"{name}: {untested[0]}")
    return names, left_out


def _why_untested(run: RunConfig, machinery: Machinery) -> str | None:
    """Why nothing is tested along a run, and what to do; None where it is tested."""
    if run.test is None:
        return f"configuration {run.name} has no section test, so nothing is tested along its runs; add one."
    if machinery.backend == "trl" and is_sharded(run, machinery):
        return (
            f"model {run.model.name} is sharded, since one GPU of the H100's kind is too small for it or its size is "
            "not known here, and TRL cannot test sharded weights along a run. Use --backend verl."
        )
    return None


def is_sharded(run: RunConfig, machinery: Machinery) -> bool:
    """Whether the GPUs share a run's weights. On TRL only what does not fit on one GPU is sharded."""
    if machinery.processes == 1 or machinery.backend == "verl":
        return machinery.processes > 1
    shape = shape_of(run.model)
    return shape is None or sum(device_gib(run, shape, gpus=machinery.processes, sharded=False)) > GPU_GIB


def _plan(artefact: str, machinery: Machinery) -> list[Part]:
    found, measured = training_runs(artefact, machinery), ARTEFACTS[artefact].measured
    parts: list[Part] = []
    for file, runs in found.items():
        for run in runs if machinery.backend == "trl" else ():
            run.updates.check_processes(machinery.processes)
        parts += [_train(file, run, machinery) for run in runs]
    everything = [run for runs in found.values() for run in runs]
    if measured == "diagnosed":
        parts += [_diagnose(run, prompts, machinery) for run in everything for prompts in _prompts(run)]
    if measured == "evaluated":
        parts += [_evaluate(run, machinery) for run in everything]
    return [*parts, _beside_paper(artefact, everything, machinery)]


def training_runs(artefact: str, machinery: Machinery) -> dict[Path, list[RunConfig]]:
    """The runs that a table or figure wants, by configuration; see `plan`."""
    if artefact not in ARTEFACTS:
        raise ValueError(f"artefact {artefact!r} is unknown; there are {', '.join(ARTEFACTS)} and {ALL}.")
    wanted, found = ARTEFACTS[artefact], {}
    for name, variants in wanted.files.items():
        file = CONFIGS / "training" / f"{name}.yaml" if machinery.config is None else machinery.config
        runs = load_experiment(file)
        if wanted.measured == "diagnosed":
            runs = [run for run in runs if run.diagnose is not None][: None if machinery.all_variants else 1]
            if not runs:
                raise ValueError(f"{file}: has no section diagnose, which {artefact} comes from.")
        elif machinery.config is None and not machinery.all_variants:
            runs = [run for run in runs if (parse_method(run.method)[0], run.updates.reuse) in variants]
        found[file] = runs
    return found


def wanted_runs(artefact: str, machinery: Machinery) -> dict[Path, list[RunConfig]]:
    """The runs of a plan, by configuration, each once."""
    found: dict[Path, list[RunConfig]] = {}
    for name in reached(artefact, machinery)[0]:
        for file, runs in training_runs(name, machinery).items():
            there = found.setdefault(file, [])
            there += [run for run in runs if run not in there]
    return found


def folder_of(run: RunConfig, machinery: Machinery) -> Path:
    """Where a run lies."""
    return machinery.runs / {"trl": "training", "verl": "verl"}[machinery.backend] / run.name / run_label(run)


def _train(file: Path, run: RunConfig, machinery: Machinery) -> Part:
    folder = folder_of(run, machinery)
    if (folder / IDENTITY).exists():  # a run that is done is not asked itself
        there = json.loads((folder / IDENTITY).read_text())
        refuse_others(folder, there | identity(run), "Give the configuration another name, or remove the folder.")
    variant = ["--method", run.method, "--seed", str(run.seed), "--reuse", str(run.updates.reuse)]
    variant += ["--weights", run.weights] + ([] if run.scale is None else ["--scale", run.scale])
    places = [*_data(machinery), "--results", str(machinery.results)]
    if machinery.backend == "verl":
        sizes = ["--gpus", str(machinery.gpus), "--nodes", str(machinery.nodes)]
        command = [*_package(), "launch-verl", str(file), *variant, *sizes, *places, "--runs", str(machinery.runs)]
        command += [part for option in machinery.options for part in ("--option", option)]
    else:
        arguments = ["llm_experiments", "train", "--config", str(file), *variant, *places]
        arguments += ["--runs", str(machinery.runs)]
        launcher = [sys.executable, "-m"]
        if is_sharded(run, machinery):
            launcher += ["accelerate.commands.launch", "--config_file", str(FSDP)]
            launcher += ["--num_processes", str(machinery.gpus), "-m"]
        elif machinery.gpus > 1:
            launcher += ["torch.distributed.run", "--standalone", "--nproc_per_node", str(machinery.gpus), "-m"]
        command = [*launcher, *arguments]
    return Part(f"train {run.name} {run_label(run)}", tuple(command), folder / "curve.csv", folder / "checkpoints")


def _prompts(run: RunConfig) -> list[Prompts]:
    """The paper's first, then random ones, which the run has rarely visited."""
    return list(dict.fromkeys((prompts_of(run, None), "random")))


def _diagnose(run: RunConfig, prompts: Prompts, machinery: Machinery) -> Part:
    command = [*_package(), "diagnose", "--run", str(folder_of(run, machinery)), "--prompts", prompts]
    command += _data(machinery)
    command += ["--runs", str(machinery.runs), "--results", str(machinery.results)]
    # The stages go on by themselves where they stopped; the last of them writes this.
    done = machinery.results / diagnosis_name(run, prompts) / "score_norms_summary.csv"
    return Part(f"diagnose {run.name} {run_label(run)}, {prompts} prompts", tuple(command), done, alone=False)


def _evaluate(run: RunConfig, machinery: Machinery) -> Part:
    folder, last = folder_of(run, machinery), run.updates.steps
    if machinery.backend == "verl" and last not in run.snapshot_steps:
        raise ValueError(
            f"updates.snapshot_every of {run.name} must divide its {last} steps: verl leaves no other model of the end."
        )
    model = snapshot(folder, last) if last in run.snapshot_steps else folder / "model"
    chat, system = prompt_style(run.model)
    command = [*_package(), "evaluate", "--model", str(model), "--name", result_name(run), "--suite", machinery.suite]
    command += ["--engine", run.sampling.engine]
    if run.sampling.engine == "vllm":
        command += ["--batch-size", str(max(run.sampling.batch_size, SEQUENCES))]
    command += ["--max-new-tokens", str(run.sampling.max_new_tokens), "--chat" if chat else "--no-chat"]
    command += ([] if system is None else ["--system", system]) + _data(machinery)
    command += ["--runs", str(machinery.runs), "--results", str(machinery.results)]
    done = machinery.results / "evaluations" / result_name(run) / "provenance.json"
    other = done.exists() and json.loads(done.read_text())["config"]["suite"] != machinery.suite
    return Part(f"evaluate {run.name} {run_label(run)}", tuple(command), None if other else done, alone=False)


def _beside_paper(artefact: str, runs: list[RunConfig], machinery: Machinery) -> Part:
    measured = ARTEFACTS[artefact].measured
    if measured == "diagnosed":
        names = [diagnosis_name(run, prompts) for run in runs for prompts in _prompts(run)]
    else:
        names = [run.name if measured == "tested" else result_name(run) for run in runs]
    below = {"diagnosed": "", "evaluated": "evaluations", "tested": "training"}[measured]
    command = [sys.executable, "-m", "paper_figures.training.beside_paper", artefact]
    command += [str(machinery.results / below / name) for name in dict.fromkeys(names)]
    if measured == "evaluated":
        for run in runs:
            command += ["--variant", f"{run.method}|{run.updates.reuse}"]
    command += ["--out", str(machinery.results / artefact)]
    return Part(f"{artefact} beside the paper's", tuple(command), None)


def _package() -> list[str]:
    return [sys.executable, "-m", "llm_experiments"]


def _data(machinery: Machinery) -> list[str]:
    return [] if machinery.data is None else ["--data", str(machinery.data)]
