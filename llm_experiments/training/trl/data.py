"""Problems as TRL wants them: a data set of prompts with ids, and a reward function."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from datasets import Dataset

from llm_experiments.tasks.base import Problem, Task

ID_COLUMN = "problem_id"


def training_set(problems: Sequence[Problem], *, chat: bool, system: str | None, copies: int) -> Dataset:
    """One row for each problem and copy, ``prompt, problem_id``.

    chat: Whether prompts are messages, to which TRL applies the tokenizer's template.
    system: System message.
    """
    rows = [{"prompt": _prompt(problem.prompt, chat, system), ID_COLUMN: problem.id} for problem in problems]
    return Dataset.from_list([row for row in rows for _ in range(copies)])


def reward_function(task: Task) -> Callable[..., list[float | None]]:
    """A task's rewards as TRL calls them: for completions of all prompts at once, told apart by their ids.

    Ungraded completions have the reward None, which `BaselineGRPOTrainer` masks: advantage 0, and not recorded.
    """
    problems = {problem.id: problem for problem in task.problems}

    def reward(completions: Sequence[Any], problem_id: Sequence[str], **_: Any) -> list[float | None]:
        found = task.grade([problems[name] for name in problem_id], [_text(each) for each in completions])
        return [None if math.isnan(each) else each for each in found]

    reward.__name__ = "reward"  # TRL logs it under this name
    return reward


def _prompt(text: str, chat: bool, system: str | None) -> str | list[dict[str, str]]:
    if not chat:
        return text
    messages = [{"role": "system", "content": system}] if system else []
    return [*messages, {"role": "user", "content": text}]


def _text(completion: Any) -> str:
    """A completion's text; TRL gives messages where prompts are messages."""
    return completion if isinstance(completion, str) else str(completion[-1]["content"])
