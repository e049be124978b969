"""Evaluation of one model: sample each problem, grade, and write accuracies; resumable, and repeatable from disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kaestat.core.result_tables import write_table
from kaestat.core.storage import write_atomically
from llm_experiments.config import TaskConfig
from llm_experiments.evaluation.config import EvaluationConfig
from llm_experiments.evaluation.suites import EvaluationSet, parse_suite
from llm_experiments.evaluation.tables import accuracy_table, problem_table
from llm_experiments.policies.base import Policy
from llm_experiments.pools.sampling import sample_pool
from llm_experiments.pools.store import PoolStore, PromptPool
from llm_experiments.provenance import provenance
from llm_experiments.seeding import seed_of
from llm_experiments.starting import ProgressBar
from llm_experiments.tasks import Task, open_task

if TYPE_CHECKING:
    from llm_experiments.policies.transformers_policy import TransformersPolicy

STEP = 0  # of the pools: there is one checkpoint
SHORT_PROMPTS = ("What is 2 + 3?", "Name a prime number.")
PROBLEMS_AT_ONCE = 64  # sampled together where few completions of each are wanted
GRADING = ("timeout", "memory_mib", "workers", "budget")  # options of verifiers: completions do not depend on them


class Evaluation:
    """One model on the sets of a suite.

    data: Folder of local files of the sets; those that it lacks are read from their public source.
    runs: Completions lie in ``runs/evaluations/NAME/SET``.
    results: Tables are written to ``results/evaluations/NAME``.
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

        regrade: Grade stored completions anew, after a verifier has changed; nothing is sampled.
        Returns: See `accuracy_table`.
        Raises FileNotFoundError: With ``regrade``, if completions are missing; or if a set or the model can not be
            read.
        Raises ValueError if stored completions are of another model or other settings.
        """
        tasks = {each.task: self._task(each) for each in self._sets}  # all sets are read before a model is loaded
        pools = {each.task: self._pools(each, tasks[each.task], regrade) for each in self._sets}
        frames = {
            "accuracy": accuracy_table(self._sets, pools, seed=seed_of(self.config.seed, "bootstrap")),
            "problems": problem_table(pools),
        }
        for name, frame in frames.items():
            write_table(self.results / f"{name}.csv", frame, 6)
        facts = {"local_files": [each.task for each in self._sets if self._file(each)]}
        write_atomically(self.results / "provenance.json", json.dumps(provenance(self.config) | facts, indent=1))
        return frames["accuracy"]

    def _task(self, each: EvaluationSet) -> Task:
        task = open_task(
            TaskConfig(name=each.task, path=self._file(each), split=each.split, options=self.config.options)
        )
        limit = self.config.limit
        return task if limit is None else replace(task, problems=tuple(task.problems[:limit]))

    def _file(self, each: EvaluationSet) -> Path | None:
        """The set's file in the folder of local data; None if there is none."""
        places = [] if self._data is None else [self._data / name for name in each.files]
        return next((path for path in places if path.is_file()), None)

    def _pools(self, each: EvaluationSet, task: Task, regrade: bool) -> list[PromptPool]:
        """The graded completions of one set, in the order of its problems."""
        store = PoolStore(self._folder / each.task, self._identity(each), [problem.id for problem in task.problems])
        with self._progress(f"{each.task} (problems)", len(task.problems)) as done:
            if not regrade:
                return self._sampled(store, task, each.samples, done)
            for problem in task.problems:
                pool = store.read(STEP, problem.id)
                texts = [completion.text for completion in pool.completions]
                store.write(replace(pool, rewards=np.array(task.rewards(problem, texts), dtype=float)))
                done()
        return [store.read(STEP, problem.id) for problem in task.problems]

    def _sampled(self, store: PoolStore, task: Task, samples: int, done: Callable[[], None]) -> list[PromptPool]:
        """Sample and grade what is missing, several problems at once; the completions of all, in order."""
        if store.missing(STEP) or "_loaded" in self.__dict__:
            sample_pool(
                store,
                self.policy,
                task,
                step=STEP,
                checkpoint=self.digest,
                size=samples,
                seed=self.config.seed,
                at_once=max(1, min(PROBLEMS_AT_ONCE, self.config.sampling.batch_size // samples)),
                done=done,
            )
        return [store.read(STEP, problem.id) for problem in task.problems]

    def _identity(self, each: EvaluationSet) -> dict[str, Any]:
        made_of = self.config.model_dump(mode="json", include={"model", "sampling", "seed", "options"})
        asked = {name: value for name, value in made_of["options"].items() if name not in GRADING}
        return made_of | {"options": asked, "set": each.task, "samples": each.samples}

    @cached_property
    def _loaded(self) -> TransformersPolicy:
        from llm_experiments.policies import load_policy

        with self._progress("model", 0):
            return load_policy(self.config.model, self.config.sampling, cache=self._runs / "models")

    @cached_property
    def policy(self) -> Policy:
        """What samples, loaded when it is needed."""
        engine, name = self.config.sampling.engine, self.config.model.name
        return sampler_beside(self._loaded, engine, name, self._folder / "model")

    @cached_property
    def digest(self) -> str:
        """Of the model's weights."""
        return digest_in_memory(self._loaded)


def sampler_beside(policy: TransformersPolicy, engine: str, name: str, folder: Path) -> Policy:
    """What samples for a policy.

    engine ({"transformers", "vllm"}): The policy itself, or vLLM at its weights, after both have agreed on what
        completions are worth.
    name: What the policy was loaded from.
    folder: Where its weights are saved for vLLM, which reads a model folder, if ``name`` is none.
    """
    if engine == "transformers":
        return policy
    from llm_experiments.policies.vllm_policy import VllmPolicy

    source = Path(name).expanduser()
    if not source.is_dir():
        source = folder
        if not source.is_dir():
            policy.save(source)
    sampler = VllmPolicy(policy, source)
    sampler.check_agreement(policy, list(SHORT_PROMPTS))
    return sampler


def digest_in_memory(policy: TransformersPolicy) -> str:
    """SHA-256 of the weights in memory, by name."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(policy.model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
