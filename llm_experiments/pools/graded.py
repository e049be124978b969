"""Graded completions of a task's problems by one policy: sampled several problems at once, kept as they come."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from llm_experiments.policies.base import Policy
from llm_experiments.pools.store import PoolStore, PromptPool
from llm_experiments.seeding import seed_of
from llm_experiments.tasks.base import Problem, Task

STEP = 0  # of the pools: there is one checkpoint
PROBLEMS_AT_ONCE = 64  # sampled together where few completions of each are wanted
GRADING = ("timeout", "memory_mib", "workers", "budget")  # options of verifiers: completions do not hang on them


class Sampler(Protocol):
    """A policy that is loaded when it is asked for, and the digest of its weights."""

    @property
    def policy(self) -> Policy: ...

    @property
    def digest(self) -> str: ...


@dataclass(frozen=True)
class GradedPass:
    """One pass over a task's problems.

    Killed at any moment it loses the problems in hand alone, and run again it goes on to the same completions.

    Attributes
    ----------
    store : PoolStore
    task : Task
    sampler : Sampler
        Not asked for where nothing is missing.
    samples : int
        Completions of each problem.
    batch_size : int
        Completions generated at once, at least those of one problem.
    seed : int
    label : str
        Of the pass: another one draws others with the same seed.
    """

    store: PoolStore
    task: Task
    sampler: Sampler
    samples: int
    batch_size: int
    seed: int
    label: str

    def run(self, done: Callable[[], None] = lambda: None) -> None:
        """Sample and grade what is missing; ``done`` is called for each problem."""
        for problems in self._chunks():
            if any(not self.store.path(STEP, problem.id).exists() for problem in problems):
                self._sample(problems)  # the whole chunk: what it draws hangs on all of its prompts
            for _ in problems:
                done()

    def pools(self, known: Collection[str] = ()) -> list[PromptPool]:
        """The completions of all problems, in order.

        Parameters
        ----------
        known : collection of str
            Digests of the weights that they must be of, if that is known.

        Raises
        ------
        FileNotFoundError
            If some are missing.
        ValueError
            If they are of several weights.
        """
        pools = [self.store.read(STEP, problem.id) for problem in self.task.problems]
        if len({pool.checkpoint for pool in pools} | set(known)) > 1:
            raise ValueError(
                f"{self.store.folder}: completions of other weights than the model's now. Give this one another "
                "--name, or remove the folder."
            )
        return pools

    def _sample(self, problems: Sequence[Problem]) -> None:
        groups = self.sampler.policy.sample_groups(
            [problem.prompt for problem in problems],
            self.samples,
            seed=seed_of(self.seed, self.label, problems[0].id),
        )
        rewards = self.task.grade(
            [problem for problem in problems for _ in range(self.samples)],
            [completion.text for group in groups for completion in group],
            patient=True,
        )
        for problem, group, graded in zip(problems, groups, np.reshape(rewards, (-1, self.samples)), strict=True):
            self.store.write(PromptPool(STEP, self.sampler.digest, problem.id, tuple(group), graded))

    def _chunks(self) -> Iterator[Sequence[Problem]]:
        """Problems sampled together: always cut at the same places, so that a resumed pass draws the same."""
        size, problems = max(1, min(PROBLEMS_AT_ONCE, self.batch_size // self.samples)), self.task.problems
        for start in range(0, len(problems), size):
            yield problems[start : start + size]
