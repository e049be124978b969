"""What a verifier is: the comparison of completions with a ground truth."""

from collections.abc import Sequence
from typing import Protocol


class Verifier(Protocol):
    """Grades completions; whatever their text, in bounded time and memory."""

    def rewards(self, answer: str, texts: Sequence[str]) -> list[float]:
        """1.0 for each completion whose final answer equals ``answer``, else 0.0."""

    def grade(self, answers: Sequence[str], texts: Sequence[str], *, patient: bool = False) -> list[float]:
        """As `rewards`, each completion with its own ground truth; NaN for those that are ungraded for want of time.

        With ``patient`` none is: each has its own limit of time, however long all of them take.
        """
