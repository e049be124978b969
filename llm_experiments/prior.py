"""An offline pass over the problems of training runs: their pass rates, in a file that a run can begin with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kaestat.core.storage import write_atomically
from kaestat.history.prior_table import check_kind, write_table
from llm_experiments.config import ModelConfig
from llm_experiments.policies.base import Policy
from llm_experiments.policies.presets import prompt_style
from llm_experiments.policies.sampler import digest_in_memory, sampler_beside
from llm_experiments.pools.graded import GRADING, GradedPass
from llm_experiments.pools.store import PoolStore
from llm_experiments.provenance import provenance
from llm_experiments.tasks.base import Task
from llm_experiments.training.config import RunConfig
from llm_experiments.training.start import ProgressBar, Start

if TYPE_CHECKING:
    from llm_experiments.policies.transformers_policy import TransformersPolicy

SAME_START = ("model", "model_seed", "sampling")  # of all runs that a prior is for


@dataclass(frozen=True)
class PassRates:
    """What a pass found.

    Attributes
    ----------
    path : Path
        File for `kaestat.Prior.read`, a row for each problem: ``prompt_id, prior_mean, prior_count``. Beside it lies
        ``STEM.provenance.json``.
    table : DataFrame
        Its content.
    mean, se : float
        Mean reward over problems, and its standard error over problems.
    """

    path: Path
    table: pd.DataFrame
    mean: float
    se: float


class PriorPass:
    """Samples the policy that runs begin with, or another one, on the problems that they train on.

    Prompts, temperature, longest completion and verifier are those of the runs.

    Parameters
    ----------
    runs_of : sequence of RunConfig
        The runs that the prior is for: of one experiment, so that they begin alike. Their problems are taken together.
    name : str
        Of the pass.
    completions : int
        Of each problem.
    out : Path
        The file, ``.csv``, ``.jsonl`` or ``.parquet``.
    model : str or None
        Model folder or hub id in place of that which the runs begin with.
    engine : {"transformers", "vllm"} or None
        What samples; None takes the configuration's.
    seed : int
        Of the completions.
    data : Path or None
        Folder of local files of the tasks.
    folder : Path
        Where runs lie; completions are kept in ``priors/NAME`` below it.
    progress : callable
        ``progress(part, total)`` is a context whose value is called after each unit of the part.

    Raises
    ------
    ValueError
        If the runs do not begin alike, or the file's name ends otherwise.
    """

    def __init__(
        self,
        runs_of: Sequence[RunConfig],
        *,
        name: str,
        completions: int,
        out: Path,
        model: str | None = None,
        engine: str | None = None,
        seed: int = 0,
        data: Path | None,
        folder: Path,
        progress: ProgressBar,
    ):
        first = runs_of[0]
        for part in SAME_START:
            if any(getattr(run, part) != getattr(first, part) for run in runs_of):
                raise ValueError(f"{part}: the runs differ in it, and a prior is of one policy; give runs that agree.")
        check_kind(out)
        self._starts = [Start(run, folder, data, progress) for run in runs_of]
        self._config = first.model_copy(update={"model": first.model if model is None else _other(first.model, model)})
        self._engine = engine or first.sampling.engine
        self._completions, self._seed, self._out, self._progress = completions, seed, out, progress
        self._folder = folder / "priors" / name

    def run(self) -> PassRates:
        """Sample and grade what is missing, then write the file.

        Raises
        ------
        FileNotFoundError, ConnectionError
            If the problems or the model can not be read.
        ValueError
            If the completions that are there are of other weights or settings.
        """
        task, config = self._task(), self._config
        store = PoolStore(self._folder, self._identity(task), [problem.id for problem in task.problems])
        graded = GradedPass(store, task, self, self._completions, config.sampling.batch_size, self._seed, "prior")
        with self._progress("prior (problems)", len(task.problems)) as done:
            graded.run(done)
        pools = graded.pools({self.digest} if "_loaded" in self.__dict__ else ())
        means = np.array([pool.rewards.mean() for pool in pools])
        table = pd.DataFrame(
            {
                "prompt_id": [pool.problem_id for pool in pools],
                "prior_mean": means,
                "prior_count": [len(pool.rewards) for pool in pools],
            }
        )
        facts = {"weights": pools[0].checkpoint, "completions": self._completions, "engine": self._engine}
        origin = provenance(config) | facts | {"seed": self._seed}
        write_atomically(self._out.with_suffix(".provenance.json"), json.dumps(origin, indent=1))
        write_table(self._out, table)
        se = means.std(ddof=1) / np.sqrt(len(means)) if len(means) > 1 else np.nan
        return PassRates(self._out, table, float(means.mean()), float(se))

    def _task(self) -> Task:
        """The problems of all runs: with ``task.n_prompts`` every seed draws others."""
        task = self._starts[0].task
        problems = {problem.id: problem for start in self._starts for problem in start.task.problems}
        return replace(task, problems=tuple(problems.values()))

    def _identity(self, task: Task) -> dict[str, Any]:
        config = self._config
        made_of = config.model_dump(mode="json", include={"model", "model_seed", "sampling", "task"})
        options = {name: value for name, value in made_of["task"]["options"].items() if name not in GRADING}
        asked = "".join(json.dumps([problem.prompt, problem.answer]) for problem in task.problems)
        made_of["task"] = {"options": options, "problems": hashlib.sha256(asked.encode()).hexdigest()}
        made_of["sampling"]["engine"] = self._engine
        return made_of | {
            "prompt_style": list(prompt_style(config.model)),
            "completions": self._completions,
            "seed": self._seed,
        }

    @cached_property
    def _loaded(self) -> TransformersPolicy:
        return self._starts[0].policy(self._config.model)

    @cached_property
    def policy(self) -> Policy:
        """What samples, loaded when it is needed."""
        return sampler_beside(self._loaded, self._engine, self._config.model.name, self._folder / "model")

    @cached_property
    def digest(self) -> str:
        """Of the model's weights."""
        return digest_in_memory(self._loaded)


def _other(model: ModelConfig, name: str) -> ModelConfig:
    """Another model, asked as the runs ask theirs."""
    chat, system = prompt_style(model)
    return ModelConfig(name=name, chat=chat, system=system, dtype=model.dtype, device=model.device)
