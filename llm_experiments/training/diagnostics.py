"""From a training run to the diagnostics of its own policies (the paper's Tables 1 and 2)."""

from __future__ import annotations

import re
from pathlib import Path

from llm_experiments.diagnose.config import Config
from llm_experiments.tasks.local_files import with_local_file
from llm_experiments.training.config import run_label
from llm_experiments.training.identity import prompt_style_of, run_config_of
from llm_experiments.training.snapshots import snapshot, snapshots


def diagnostics_of(folder: Path, *, data: Path | None = None) -> Config:
    """The configuration of a run's diagnostics: its task, prompts, sampling and seed, and its snapshots.

    Parameters
    ----------
    folder : Path
        Of the run.
    data : Path or None
        Folder of local files of the task.

    Raises
    ------
    FileNotFoundError
        If the folder holds no run, or lacks a snapshot.
    ValueError
        If the run has no section ``diagnose``.
    """
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
        update={
            "name": str(found[min(wanted)]),
            "revision": None,
            "chat": chat,
            "system": system,
            "pretraining": None,
        }
    )
    n_prompts = run.task.n_prompts or run.diagnose.n_prompts
    return Config(
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", f"{run.name}-{run_label(run)}"),
        seed=run.seed,
        model=model,
        task=with_local_file(run.task, data).model_copy(update={"n_prompts": n_prompts}),
        sampling=run.sampling,
        checkpoints=str(snapshot(folder, "{step}")),
        diagnostic=run.diagnose.diagnostic,
        gradient=run.diagnose.gradient,
        equal_budget=run.diagnose.equal_budget,
    )
