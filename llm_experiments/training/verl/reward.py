"""The rewards of verl's runs: each completion graded as in the runs on TRL.

verl imports `compute_score` through ``reward.custom_reward_function.path``, in several processes, and calls it from
several threads for one completion at a time. How a problem is graded stands in its row (`data.grader`), so that
one function serves every task. Verifiers, and the worker processes behind them, are made once in a process; each
completion has their limits of time and memory, and slow ones together those of `WorkerPool`, which sees no batches:
time refills its patience. Rows of a test have ``patient`` in their ``extra_info``, and none of them is ungraded.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from threading import Lock
from typing import Any

from llm_experiments.tasks.base import Problem, Task
from llm_experiments.tasks.mathematics import MathematicsTask
from llm_experiments.verifiers import MathVerifier, NumberVerifier
from llm_experiments.verifiers.worker_pool import default_workers

VERL_PROCESSES = 8  # reward.num_workers, verl's default: they share the machine's cores

_making = Lock()


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None, **ignored: Any
) -> float:
    """Reward of one completion in [0, 1]; bounded in time and memory on any text.

    NaN where slow completions have used up the time of all and nobody has graded this one: `kaestat.integrations.verl`
    masks such rows.

    data_source: Not used; the row's own ``extra_info`` says how it is graded.
    solution_str: The completion's text.
    extra_info: ``grader``, ``problem_id`` and, in a test, ``patient`` of the row, as `data.prepare_data` writes them.
    **ignored: What else verl passes.
    Raises ValueError if the row does not say how it is graded.
    Raises RuntimeError if a worker process can not start, as where `math-verify` is not installed.
    """
    info = extra_info or {}
    if not isinstance(info.get("grader"), str):
        raise ValueError(
            f"extra_info of a row of {data_source!r} holds no `grader`: prepare the data with "
            "python -m llm_experiments launch-verl."
        )
    problem = Problem(str(info.get("problem_id", "")), "", str(ground_truth))
    (reward,) = _shared_task(info["grader"]).grade([problem], [solution_str], patient=bool(info.get("patient")))
    return float(reward)


def _shared_task(grader: str) -> Task:
    with _making:  # two threads would each start worker processes
        return _task(grader)


@lru_cache(maxsize=8)
def _task(grader: str) -> Task:
    """A task that grades, without its problems."""
    settings = json.loads(grader)
    verifier, options = settings["verifier"], settings.get("options", {})
    options = {"workers": max(1, default_workers() // VERL_PROCESSES)} | options
    if verifier == "numbers":
        return MathematicsTask((), NumberVerifier())
    if verifier == "mathematics":
        return MathematicsTask((), MathVerifier(**options))
    raise ValueError(f"grader {grader} names no verifier; prepare the data with python -m llm_experiments launch-verl.")
