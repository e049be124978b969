r"""Problems of the package `reasoning_gym`, scored by its own rules.

A completion's answer is the content of its last closed ``\boxed{...}``; without one, of its last
``<answer>...</answer>``; without one, its last line. Problems are made and answers scored in a worker process with
limits of time and memory: some of the package's scorers parse or solve what they are given. A scorer that fails, or
exceeds a limit, gives 0.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_experiments.verifiers.final_answers import last_boxed, last_line, last_tagged, tail
from llm_experiments.verifiers.worker_pool import BUDGET, PASSED_OVER, PassedOver, WorkerPool

from .base import Problem, Task

TEMPLATE = "{problem}\n\nGive the final answer between <answer> and </answer>."
MAX_ANSWER = 5_000
"""Characters of an answer that are scored; longer ones score 0."""

_FULL = 1.0 - 1e-9


@dataclass(frozen=True)
class ReasoningGymProblems(Sequence):
    """Problems of one data set, made when asked for."""

    pool: WorkerPool
    size: int
    prefix: str
    template: str

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Problem:
        index = range(self.size)[index]
        (made,) = self.pool.ask([["entry", index]], patient=True)
        if made is None:
            raise RuntimeError(f"{self.prefix}: problem {index} could not be made within the limits; raise timeout.")
        question, answer = made
        return Problem(f"{self.prefix}/{index}", self.template.replace("{problem}", question), answer)


@dataclass(frozen=True)
class ReasoningGymTask(Task):
    """Problems of one `reasoning_gym` data set.

    Attributes
    ----------
    problems : sequence of Problem
    pool : WorkerPool
        The processes that score.
    binary : bool
        Whether only a full score is rewarded, with 1; otherwise the reward is the score.
    """

    problems: Sequence[Problem]
    pool: WorkerPool
    binary: bool

    def rewards(self, problem: Problem, texts: Sequence[str]) -> list[float]:
        """Score of each completion's answer in [0, 1]; 0 where the scorer fails or exceeds a limit."""
        return self.grade([problem] * len(texts), texts, patient=True)

    def grade(self, problems: Sequence[Problem], texts: Sequence[str], *, patient: bool = False) -> list[float]:
        """As `Task.grade`; all workers are at work at once."""
        places = [int(problem.id.rpartition("/")[2]) for problem in problems]
        answers = list(zip(places, map(final_answer, texts), strict=True))
        asked = list(dict.fromkeys(each for each in answers if 0 < len(each[1]) <= MAX_ANSWER))
        replies = self.pool.ask([["score", *each] for each in asked], patient=patient)
        scores = dict(zip(asked, map(self._score, replies), strict=True))
        return [scores.get(each, 0.0) for each in answers]

    def _score(self, reply: float | PassedOver | None) -> float:
        if reply is PASSED_OVER:
            return math.nan
        score = reply or 0.0
        return float(score >= _FULL) if self.binary else score


def final_answer(text: str) -> str:
    r"""What a completion answers; see the module's description.

    Examples
    --------
    >>> final_answer("<answer> 7 </answer> as I said"), final_answer("Let me think.\nIt is 7")
    ('7', 'It is 7')
    """
    text = tail(text)
    for found in (last_boxed(text), last_tagged(text)):
        if found is not None:
            return found.strip()
    return last_line(text)


def reasoning_gym_task(
    dataset: str,
    *,
    size: int = 1000,
    data_seed: int = 0,
    parameters: Mapping[str, Any] | None = None,
    binary: bool = True,
    template: str = TEMPLATE,
    timeout: float = 5.0,
    memory_mib: int = 1024,
    workers: int | None = None,
    budget: float = BUDGET,
) -> ReasoningGymTask:
    """Problems of a `reasoning_gym` data set.

    Parameters
    ----------
    dataset : str
        Its name, such as ``chain_sum``.
    size : int
        Number of problems.
    data_seed : int
        From which they are made. The same name, seed and parameters give the same problems.
    parameters : mapping or None
        Of the data set, such as ``{"min_terms": 2}``.
    binary : bool
        Whether only a full score is rewarded; otherwise partial credit is.
    template : str
        The prompt around ``{problem}``.
    timeout, memory_mib, workers, budget
        As for `llm_experiments.verifiers.MathVerifier`.

    Raises
    ------
    ValueError
        If the data set does not exist or refuses its parameters, or the template is wrong.
    """
    if "{problem}" not in template:
        raise ValueError(f"template {template!r} lacks {{problem}}.")
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size!r}.")
    arguments = {"dataset": dataset, "seed": data_seed, "size": size, "parameters": dict(parameters or {})}
    pool = WorkerPool(
        "llm_experiments.tasks.reasoning_gym_worker",
        arguments,
        timeout=timeout,
        memory_mib=memory_mib,
        workers=workers,
        budget=budget,
    )
    problems = ReasoningGymProblems(pool, size, f"reasoning_gym/{dataset}/{_variant(arguments)}", template)
    try:
        problems[0]
    except RuntimeError as error:
        raise ValueError(f"dataset {dataset!r} with parameters {arguments['parameters']}: {error}") from error
    return ReasoningGymTask(problems, pool, binary)


def _variant(arguments: Mapping[str, Any]) -> str:
    """Seed and parameters in short, for the ids."""
    if not arguments["parameters"]:
        return str(arguments["seed"])
    digest = hashlib.sha256(json.dumps(arguments["parameters"], sort_keys=True).encode()).hexdigest()
    return f"{arguments['seed']}-{digest[:8]}"
