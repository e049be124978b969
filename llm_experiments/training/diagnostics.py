"""From a training run to the diagnostics of its own policies (the paper's Tables 1 and 2)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from llm_experiments.diagnose.config import Config
from llm_experiments.diagnose.results import Results, read_results, write_results
from llm_experiments.seeding import seed_of
from llm_experiments.tasks import load_task
from llm_experiments.tasks.base import Problem
from llm_experiments.tasks.local_files import with_local_file
from llm_experiments.tasks.rows import local_rows
from llm_experiments.training.config import RunConfig, result_name
from llm_experiments.training.identity import prompt_style_of, run_config_of
from llm_experiments.training.snapshots import snapshot, snapshots
from llm_experiments.training.verl.command import ROLLOUTS

Prompts = Literal["sticky", "random"]
"""Which of a run's training prompts are diagnosed.

``sticky`` takes the minibatch of the step before each diagnosed one, as the paper does (appendix, value-estimation MSE
diagnostic): with reuse J these prompts were visited up to J steps in a row. ``random`` draws the same prompts for all
steps, most of which the run has not visited lately.
"""


def prompts_of(run: RunConfig, asked: Prompts | None) -> Prompts:
    """What is asked for; without that the paper's sticky minibatch where the run has one, ``reuse`` above 1."""
    return asked or ("sticky" if run.updates.reuse > 1 else "random")


def diagnosis_name(run: RunConfig, prompts: Prompts) -> str:
    """Name of the results: those of random prompts lie beside the paper's, where a run has both."""
    return result_name(run) + ("-random" if prompts == "random" and run.updates.reuse > 1 else "")


def diagnostics_of(
    folder: Path, *, data: Path | None = None, prompts: Prompts | None = None
) -> tuple[str, dict[int | None, Config]]:
    """The name of a run's diagnostics, and their configurations by target step; None is all steps in one.

    Sticky prompts differ from step to step, so that each step has a configuration of its own.

    folder: Of the run.
    data: Folder of local files of the task.
    prompts: None chooses by `prompts_of`.
    Raises FileNotFoundError if the folder holds no run, or lacks a snapshot or the record of a step.
    Raises ValueError if the run has no section ``diagnose``.
    """
    run, whole = run_config_of(folder), _whole(folder, data)
    if prompts_of(run, prompts) == "random":
        whole = whole.model_copy(update={"name": diagnosis_name(run, "random")})
        return whole.name, {None: whole}
    task = whole.task.model_copy(update={"n_prompts": run.task.n_prompts})
    problems = load_task(task, seed=seed_of(run.seed, "task")).problems if (folder / ROLLOUTS).is_dir() else ()
    found: dict[int | None, Config] = {}
    for step in whole.diagnostic.steps:
        ids = minibatch(folder, step - 1, problems)
        wanted = run.diagnose.n_prompts if run.diagnose else None
        if wanted is not None and wanted < len(ids):
            rng = np.random.default_rng(seed_of(run.seed, "diagnosed prompts", step))
            ids = [ids[k] for k in rng.choice(len(ids), size=wanted, replace=False)]
        found[step] = whole.model_copy(
            update={
                "name": f"{whole.name}-step-{step}",
                "task": task,
                "problem_ids": tuple(ids),
                "diagnostic": whole.diagnostic.model_copy(update={"steps": (step,)}),
            }
        )
    return whole.name, found


def minibatch(folder: Path, step: int, problems: Sequence[Problem] = ()) -> list[str]:
    """Ids of the problems that a run trained on at a step, in the order of its record, each once.

    folder: Of the run.
    step: Counted from 0.
    problems: All that the run trains on. verl writes prompts out as text, and a problem is found in it by its own text,
        the longest that the prompt contains.
    Raises FileNotFoundError if the run has no record of the step.
    Raises ValueError if a prompt that verl wrote out contains no problem.
    """
    on_verl = (folder / ROLLOUTS).is_dir()
    path = folder / ROLLOUTS / f"{step + 1}.jsonl" if on_verl else folder / "records" / f"{step:06d}.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no such file, so the minibatch of step {step} is not known; diagnose --prompts random needs none."
        )
    if not on_verl:
        return list(dict.fromkeys(json.loads(path.read_text())["ids"]))
    return [_problem_in(text, problems, path) for text in dict.fromkeys(row["input"] for row in local_rows(path))]


def gather(parts: Mapping[int, Path], folder: Path) -> None:
    """Write the results of several steps as one results folder.

    parts: Results folders by target step.
    """
    found = {step: read_results(path) for step, path in parts.items()}
    frames: dict[str, list[pd.DataFrame]] = {}
    for results in found.values():
        for name, frame in results.frames().items():
            frames.setdefault(name, []).append(frame)
    whole = {name: pd.concat(each, ignore_index=True) for name, each in frames.items()}
    provenance = {
        f"{stage} of step {step}": facts
        for step, results in found.items()
        for stage, facts in results.provenance.items()
    }
    write_results(folder, Results(**whole, provenance=provenance))


def _problem_in(text: str, problems: Sequence[Problem], path: Path) -> str:
    held = [problem for problem in problems if problem.prompt in text]
    if not held:
        raise ValueError(
            f"{path}: the prompt {text[:80]!r} contains no problem of the run's task; it may have lost its beginning. "
            "diagnose --prompts random does not read it."
        )
    return max(held, key=lambda problem: len(problem.prompt)).id


def _whole(folder: Path, data: Path | None) -> Config:
    """The configuration of a run's diagnostics: its task, prompts, sampling and seed, and its snapshots."""
    run = run_config_of(folder)
    if run.diagnose is None:
        raise ValueError(
            f"{folder}: its configuration has no section diagnose, so that it kept no snapshots for it. In an "
            "experiment only the file's own method has one."
        )
    wanted, found = run.diagnose.diagnostic.pool_sizes(), snapshots(folder)
    missing = [step for step in wanted if step not in found]
    if missing:
        raise FileNotFoundError(
            f"{folder}: lacks the snapshots of steps {', '.join(map(str, missing))}; it has not come that far, or they "
            "were removed."
        )
    chat, system = prompt_style_of(folder)
    model = run.model.model_copy(
        update={"name": str(found[min(wanted)]), "chat": chat, "system": system, "pretraining": None}
    )
    n_prompts = run.task.n_prompts or run.diagnose.n_prompts
    return Config(
        name=result_name(run),
        seed=run.seed,
        model=model,
        task=with_local_file(run.task, data).model_copy(update={"n_prompts": n_prompts}),
        sampling=run.sampling,
        checkpoints=str(snapshot(folder, "{step}")),
        diagnostic=run.diagnose.diagnostic,
        gradient=run.diagnose.gradient,
    )
