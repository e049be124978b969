"""Evaluation of one model: sample each problem, grade, and write accuracies; resumable, and repeatable from disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kaestat.storage import write_atomically
from llm_experiments.config import TaskConfig
from llm_experiments.evaluation.config import EvaluationConfig
from llm_experiments.evaluation.suites import EvaluationSet, parse_suite
from llm_experiments.evaluation.tables import accuracy_table, problem_table
from llm_experiments.pools.store import PoolStore, PromptPool
from llm_experiments.provenance import provenance
from llm_experiments.seeding import seed_of
from llm_experiments.tasks import Problem, Task, open_task

if TYPE_CHECKING:
    from llm_experiments.policies.transformers_policy import TransformersPolicy

ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
GRADING = ("timeout", "memory_mib", "workers", "budget")  # options of verifiers: completions do not hang on them
STEP = 0  # of the pools: an evaluation has one checkpoint
PROBLEMS_AT_ONCE = 64  # sampled together where few completions of each are wanted


class Evaluation:
    """One model on the sets of a suite.

    Parameters
    ----------
    config : EvaluationConfig
    data : path or None
        Folder of local files of the sets; those that it lacks are read from their public source.
    runs : path
        Completions lie in ``runs/evaluations/NAME/SET``.
    results : path
        Tables are written to ``results/evaluations/NAME``.
    progress : callable
        ``progress(part, total)`` is a context whose value is called after each unit of the part.

    Attributes
    ----------
    results : Path
        Folder of the tables.
    """

    def __init__(
        self, config: EvaluationConfig, *, data: Path | None, runs: Path, results: Path, progress: ProgressBar
    ):
        self.config = config
        self.results = Path(results) / "evaluations" / config.name
        self._sets = parse_suite(config.suite)
        self._data, self._runs, self._progress = data, Path(runs), progress
        self._folder = self._runs / "evaluations" / config.name

    def run(self, *, regrade: bool = False) -> pd.DataFrame:
        """Sample and grade what is missing, then write the tables.

        Parameters
        ----------
        regrade : bool
            Grade stored completions anew, after a verifier has changed; nothing is sampled.

        Returns
        -------
        DataFrame
            See `accuracy_table`.

        Raises
        ------
        FileNotFoundError
            With ``regrade``, if completions are missing; or if a set or the model can not be read.
        ValueError
            If stored completions are of another model or other settings.
        """
        tasks = {each.task: self._task(each) for each in self._sets}  # all sets are read before a model is loaded
        pools = {each.task: self._pools(each, tasks[each.task], regrade) for each in self._sets}
        frames = {
            "accuracy": accuracy_table(self._sets, pools, seed=seed_of(self.config.seed, "bootstrap")),
            "problems": problem_table(pools),
        }
        for name, frame in frames.items():
            text = frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")
            write_atomically(self.results / f"{name}.csv", text)
        facts = {"local_files": [each.task for each in self._sets if each.local_file(self._data)]}
        write_atomically(self.results / "provenance.json", json.dumps(provenance(self.config) | facts, indent=1))
        return frames["accuracy"]

    def _task(self, each: EvaluationSet) -> Task:
        config = TaskConfig(
            name=each.task, path=each.local_file(self._data), split=each.split, options=self.config.options
        )
        task = open_task(config)
        limit = self.config.limit
        return task if limit is None else replace(task, problems=tuple(task.problems[:limit]))

    def _pools(self, each: EvaluationSet, task: Task, regrade: bool) -> list[PromptPool]:
        """The graded completions of one set, in the order of its problems."""
        store = PoolStore(
            self._folder / each.task, self._identity(each), [problem.id for problem in task.problems], None
        )
        with self._progress(f"{each.task} (problems)", len(task.problems)) as done:
            for problems in self._chunks(task.problems, each.samples):
                missing = [problem for problem in problems if not store.path(STEP, problem.id).exists()]
                if regrade:
                    for problem in problems:
                        pool = store.read(STEP, problem.id)
                        texts = [completion.text for completion in pool.completions]
                        store.write(replace(pool, rewards=np.array(task.rewards(problem, texts), dtype=float)))
                elif missing:
                    # The whole chunk again: what it draws hangs on all of its prompts.
                    self._sample(each, task, store, problems)
                for _ in problems:
                    done()
        pools = [store.read(STEP, problem.id) for problem in task.problems]
        if not regrade:
            self._check_model(each, pools)
        return pools

    def _sample(self, each: EvaluationSet, task: Task, store: PoolStore, problems: Sequence[Problem]) -> None:
        groups = self._sampler.sample_groups(
            [problem.prompt for problem in problems],
            each.samples,
            seed=seed_of(self.config.seed, "evaluation", problems[0].id),
        )
        rewards = task.grade(
            [problem for problem in problems for _ in range(each.samples)],
            [completion.text for group in groups for completion in group],
        )
        for problem, group, graded in zip(problems, groups, np.reshape(rewards, (-1, each.samples)), strict=True):
            store.write(PromptPool(STEP, self._digest, problem.id, tuple(group), graded))

    def _chunks(self, problems: Sequence[Problem], samples: int) -> Iterator[Sequence[Problem]]:
        """Problems sampled together: always cut at the same places, so that a resumed run draws the same."""
        size = max(1, min(PROBLEMS_AT_ONCE, self.config.sampling.batch_size // samples))
        for start in range(0, len(problems), size):
            yield problems[start : start + size]

    def _identity(self, each: EvaluationSet) -> dict[str, Any]:
        made_of = self.config.model_dump(mode="json", include={"model", "sampling", "seed", "options"})
        asked = {name: value for name, value in made_of["options"].items() if name not in GRADING}
        return made_of | {"options": asked, "set": each.task, "samples": each.samples}

    def _check_model(self, each: EvaluationSet, pools: Sequence[PromptPool]) -> None:
        """Refuse completions that other weights under the same name have left."""
        found = {pool.checkpoint for pool in pools}
        if "_policy" in self.__dict__:
            found |= {self._digest}
        if len(found) > 1:
            raise ValueError(
                f"{self._folder / each.task}: completions of other weights than the model's now. Give this evaluation "
                "another --name, or remove the folder."
            )

    @cached_property
    def _policy(self) -> TransformersPolicy:
        from llm_experiments.policies import load_policy

        with self._progress("model", 0):
            return load_policy(self.config.model, self.config.sampling, cache=self._runs / "models", seed=0)

    @cached_property
    def _sampler(self) -> Any:
        policy = self._policy
        if self.config.sampling.engine == "transformers":
            return policy
        from llm_experiments.policies.vllm_policy import VllmPolicy

        folder = Path(self.config.model.name)
        if not folder.is_dir():  # vLLM reads a folder
            folder = self._folder / "model"
            if not folder.is_dir():
                policy.save(folder)
        sampler = VllmPolicy.beside(policy, folder)
        sampler.check_agreement(policy, ["What is 2 + 3?", "Name a prime number."])
        return sampler

    @cached_property
    def _digest(self) -> str:
        """SHA-256 of the weights in memory, by name."""
        import torch

        digest = hashlib.sha256()
        for name, tensor in sorted(self._policy.model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()
