"""What a task is: problems with checkable answers, and the reward of a completion."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """A prompt whose answer can be checked.

    id: Stable across runs and machines: source, split and index, such as ``gsm8k/test/17``.
    prompt: What the user asks; the policy adds its chat template.
    answer: Ground truth, as the task's verifier reads it.
    level: Difficulty as the source names it; empty if it does not.
    """

    id: str
    prompt: str
    answer: str
    level: str = ""


class Task(ABC):
    """Problems, and what a completion of one is worth."""

    problems: Sequence[Problem]

    @abstractmethod
    def rewards(self, problem: Problem, texts: Sequence[str]) -> list[float]:
        """Reward of each completion in [0, 1]; each is bounded in time and memory on any text."""

    def grade(self, problems: Sequence[Problem], texts: Sequence[str], *, patient: bool = False) -> list[float]:
        """As `rewards`, for a batch: each completion of the problem at its place.

        A batch takes bounded time, as a step of training must. Completions that this leaves ungraded are NaN, never 0.
        With ``patient`` each completion has all of its time, and none is NaN.
        """
        rows: dict[str, list[int]] = {}
        for row, problem in enumerate(problems):
            rows.setdefault(problem.id, []).append(row)
        found = [0.0] * len(texts)
        for of_problem in rows.values():
            rewards = self.rewards(problems[of_problem[0]], [texts[row] for row in of_problem])
            for row, reward in zip(of_problem, rewards, strict=True):
                found[row] = float(reward)
        return found
