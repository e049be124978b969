r"""Mathematical answers, compared by `math-verify` in worker processes with limits of time and memory.

A completion's answer is the content of its last closed ``\boxed{...}`` or ``\fbox{...}``, else the first formula after
the last ``####`` or "answer is", else the last formula of the text (`final_answers`). More than 1,000 characters grade
wrong: no ground truth comes near that length, and parsing takes long there.

Unicode, separators in numbers and LaTeX of no meaning are spelled in one way first (`spelling`). Passages equal to the
ground truth but for spaces and dollar signs are right without being parsed. Everything else is `math-verify`'s to say:
expressions agree symbolically, sets in any order, intervals with their inequalities, and numbers as `equality` says.
Units are compared where both have one (`units`), and so are bases (``52_8``).

An answer that leaves the choice (``5 \text{ or } 6``) is right only if each of its alternatives is, unless the ground
truth has several values itself. With more than four alternatives it is wrong.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from .alternatives import is_several
from .final_answers import passages
from .spelling import plain
from .units import split_unit, units_differ
from .worker_pool import BUDGET, PASSED_OVER, PassedOver, WorkerPool

MAX_PASSAGE = 1_000
"""Characters that are parsed."""

MAX_ALTERNATIVES = 4
"""Answers of one completion that are compared; each may take as long as a completion."""

Request = tuple[str, str]

_NO_MEANING = re.compile(r"(?<![0-9])\s|\s(?![0-9])|\$")
_IN_BASE = re.compile(r"([0-9][0-9A-Za-z]*)_\{?([0-9]+)\}?")
_APART = re.compile(r"[0-9] [0-9]")  # not a number, but math-verify takes it for one
_END = re.compile(r"(?:\\$|[\s.,;:])+$")
_COUNTED = re.compile(
    r"(?<=[0-9)}\]])(?: ?\\(?:text\w*|mathrm|mbox) ?\{(?:[^{}]|\{[^{}]*\})*\}(?:\^\{?-?[0-9]\}?)?|"
    r" [A-Za-z]{2,}(?: [A-Za-z]+)*)$"
)


class MathVerifier:
    """Grades mathematical answers; bounded on any completion, and on any number of them.

    Use it as a context manager, or leave its processes to end with it. Safe to use from several threads.

    timeout: Seconds for each completion; one that takes longer grades 0.
    memory_mib: Address space of each worker process; a completion that needs more grades 0.
    workers: Worker processes; None takes as many as there are cores (`worker_pool.default_workers`). They start as
        needed.
    budget: Seconds that a batch may wait for completions which take longer than a tenth of ``timeout`` (`WorkerPool`).
        When half of them are gone, ``timeout`` gets shorter. A completion that needs more than this shorter time is
        *ungraded*: its reward is NaN.

    Examples
    --------
    >>> with MathVerifier(timeout=1) as verifier:
    ...     verifier.rewards(r"\\frac{1}{2}", [r"So \\boxed{0.5}.", r"\\boxed{9^{9^{9^{9}}}}"])
    [1.0, 0.0]
    """

    def __init__(
        self, *, timeout: float = 5.0, memory_mib: int = 1024, workers: int | None = None, budget: float = BUDGET
    ):
        self._pool = WorkerPool(
            "llm_experiments.verifiers.math_worker",
            timeout=timeout,
            memory_mib=memory_mib,
            workers=workers,
            budget=budget,
        )

    def __enter__(self) -> MathVerifier:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes; a later call starts new ones."""
        self._pool.close()

    def rewards(self, answer: str, texts: Sequence[str]) -> list[float]:
        """1.0 for each completion whose answer equals ``answer``, else 0.0, however long that takes together.

        Raises ValueError if ``answer`` is empty.
        Raises RuntimeError if a worker process can not start, as where `math-verify` is not installed.
        """
        return self.grade([answer] * len(texts), texts, patient=True)

    def grade(self, answers: Sequence[str], texts: Sequence[str], *, patient: bool = False) -> list[float]:
        """As `rewards`, each completion with its own ground truth. Equal pairs are compared once.

        patient: Whether each completion has all of its time. Otherwise the batch takes bounded time, and ungraded
            completions are NaN.
        Raises ValueError, RuntimeError: As `rewards`.
        """
        if not all(answer.strip() for answer in answers):
            raise ValueError("answer is empty: nothing can be compared with it; leave this problem out.")
        requests = [_requests(answer, text) for answer, text in zip(answers, texts, strict=True)]
        asked = list(dict.fromkeys(one for each in requests if not isinstance(each, bool) for one in each))
        correct = dict(zip(asked, self._pool.ask(asked, patient=patient), strict=True))
        return [
            float(each) if isinstance(each, bool) else _verdict([correct[one] for one in each]) for each in requests
        ]


def _verdict(replies: Sequence[bool | PassedOver | None]) -> float:
    """Of a completion all of whose alternatives must be right."""
    if all(reply is True for reply in replies):
        return 1.0
    return math.nan if all(reply in (True, PASSED_OVER) for reply in replies) else 0.0


def _requests(answer: str, text: str) -> list[Request] | bool:
    """What to ask the workers, all of which must be right; or the verdict, where there is nothing to parse."""
    answer = _END.sub("", plain(answer))
    several = is_several(answer)
    found = passages(text, several=several)
    if not 0 < len(found) <= MAX_ALTERNATIVES or any(len(each) > MAX_PASSAGE for each in found):
        return False
    found = [_END.sub("", each) for each in found]
    if not all(found):
        return False
    if all(_plain(each) == _plain(answer) for each in found):
        return True
    if several:
        return [(answer, each) for each in found]
    number, unit = split_unit(answer)
    requests = []
    for each in found:
        bare, other = split_unit(each)
        digits, truth = _IN_BASE.fullmatch(_plain(bare)), _IN_BASE.fullmatch(_plain(number))
        if units_differ(unit, other) or _APART.search(bare) or (digits and truth and digits.groups() != truth.groups()):
            return False
        if digits and not truth:
            try:
                bare = str(int(digits[1], int(digits[2])))
            except ValueError:  # not the digits of that base
                return False
        requests.append((_COUNTED.sub("", number), _COUNTED.sub("", bare)))
    return requests


def _plain(text: str) -> str:
    return _NO_MEANING.sub("", text)
