"""Tasks: problems with checkable answers, by name."""

from collections.abc import Callable, Collection
from importlib import import_module
from types import ModuleType

from llm_experiments.config import PretrainingConfig, TaskConfig

from .base import Problem, Task
from .selection import select
from .sources import SOURCES

# Each a module with a task of that name, and the ``examples`` that a model made from scratch learns.
MADE_WORLDS = ("columns", "workings")
N_EXAMPLES = 50_000  # of the training set of a model made from scratch, at most

__all__ = ["TASKS", "Problem", "Task", "load_task", "open_task", "pretraining_examples", "select", "world_examples"]


def _mathematics(config: TaskConfig) -> Task:
    from .mathematics import mathematics

    return mathematics(config.name, path=config.path, split=config.split, **config.options)


def _generated(config: TaskConfig) -> Task:
    if config.path is not None or config.split is not None:
        own = "; options.split names its own" if config.name in MADE_WORLDS else ""
        raise ValueError(f"task {config.name} is generated: it takes no path and no split{own}.")
    return getattr(_module(config.name), config.name)(**config.options)


def _module(world: str) -> ModuleType:
    return import_module(f".{world}", __name__)


TASKS: dict[str, Callable[[TaskConfig], Task]] = {
    **dict.fromkeys(("arithmetic", *MADE_WORLDS), _generated),
    **dict.fromkeys(SOURCES, _mathematics),
}
"""How each task is made from its configuration, all of its problems in order."""


def open_task(config: TaskConfig) -> Task:
    """All problems of a task, in order.

    Raises ValueError if there is no such task, or its options are wrong.
    Raises FileNotFoundError, ConnectionError if its problems can not be read; the message says what to give.
    """
    if config.name not in TASKS:
        raise ValueError(f"task {config.name!r} is unknown; there are {', '.join(TASKS)}.")
    try:
        return TASKS[config.name](config)
    except TypeError as error:
        raise ValueError(f"task {config.name}, options {config.options}: {error}") from error


def load_task(config: TaskConfig, *, seed: int) -> Task:
    """``config.n_prompts`` problems of a task, drawn without replacement; all of them, in order, without that number.

    seed: The same seed gives the same problems in the same order.
    Raises ValueError: As `open_task`, or if the task has fewer problems.
    Raises FileNotFoundError, ConnectionError: As `open_task`.
    """
    return select(open_task(config), config.n_prompts, seed=seed)


def pretraining_examples(
    task: TaskConfig, pretraining: PretrainingConfig, *, seed: int, exclude: Collection[str]
) -> list[tuple[str, str]]:
    """What a model made from scratch is trained on: prompts and answers of the task's kinds of problem.

    exclude: Ids of problems that are held out.
    Raises ValueError if the task is not arithmetic, the only one with a training set of its own.
    """
    from .arithmetic import examples

    if task.name != "arithmetic":
        raise ValueError(f"model tiny learns arithmetic; task {task.name!r} has no training set.")
    n = min(N_EXAMPLES, pretraining.steps * pretraining.batch_size)
    return examples(n=n, seed=seed, exclude=exclude, hesitation=pretraining.hesitation, **task.options)


def world_examples(task: TaskConfig, n: int, *, seed: int) -> list[tuple[str, str]]:
    """Prompts, and what a model made from scratch shall say to them, right or wrong, for a synthetic task.

    Raises ValueError if the task is not a synthetic task.
    """
    if task.name not in MADE_WORLDS:
        raise ValueError(f"task {task.name!r} is not a synthetic task; there are {', '.join(MADE_WORLDS)}.")
    options = {name: value for name, value in task.options.items() if name != "split"}
    return _module(task.name).examples(n, seed=seed, **options)
