"""Generated arithmetic with graded difficulty.

A kind of problem is named by its operation and its digits: ``add-1`` (one-digit sums), ``sub-2`` (two-digit
differences), ``mul-1x2`` (one-digit by two-digit products), up to six digits. Every pair of operands is one problem, so
a kind is a finite set without repeats: 100 one-digit sums (0 to 9), 8,100 two-digit differences (10 to 99; results may
be negative).
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import add, mul, sub
from typing import Literal

import numpy as np

from llm_experiments.verifiers.numbers import NumberVerifier

from .base import Problem, Task

OPERATIONS = {"add": ("+", add), "sub": ("-", sub), "mul": ("*", mul)}
QUESTION = "What is {left} {sign} {right}? Answer with a number only."
BARE = "{left}{sign}{right}="
GIVES_UP = "?"
_KIND = re.compile(r"(?P<operation>add|sub|mul)-(?P<left>[1-6])(?:x(?P<right>[1-6]))?")


@dataclass(frozen=True)
class Kind:
    """All problems with one operation and given numbers of digits.

    name: Such as ``add-2`` or ``mul-1x2``.
    """

    name: str

    def __post_init__(self):
        if not _KIND.fullmatch(self.name):
            raise ValueError(
                f"kind {self.name!r} is none of arithmetic's: give an operation ({', '.join(OPERATIONS)}) and digits "
                "from 1 to 6, such as add-1, sub-2 or mul-1x2."
            )

    @property
    def operands(self) -> tuple[range, range]:
        """Left and right operands."""
        match = _KIND.fullmatch(self.name)
        return _numbers(int(match["left"])), _numbers(int(match["right"] or match["left"]))

    def __len__(self) -> int:
        left, right = self.operands
        return len(left) * len(right)

    def size(self, index: int) -> float:
        """Where the left operand of a problem lies among those of its kind, from 0 (the smallest) to 1."""
        lefts, rights = self.operands
        return (index // len(rights)) / (len(lefts) - 1)

    def problem(self, index: int, template: str) -> Problem:
        """The problem with a given number, ``0 <= index < len(self)``."""
        lefts, rights = self.operands
        left, right = lefts[index // len(rights)], rights[index % len(rights)]
        sign, operation = OPERATIONS[self.name[:3]]
        return Problem(
            id=f"arithmetic/{self.name}/{left}{sign}{right}",
            prompt=template.format(left=left, sign=sign, right=right),
            answer=str(operation(left, right)),
            level=self.name,
        )


@dataclass(frozen=True)
class ArithmeticProblems(Sequence):
    """Every problem of some kinds, one kind after the other, made when asked for."""

    kinds: tuple[Kind, ...]
    template: str

    def __len__(self) -> int:
        return sum(map(len, self.kinds))

    def __getitem__(self, index: int) -> Problem:
        index = range(len(self))[index]
        for kind in self.kinds:
            if index < len(kind):
                return kind.problem(index, self.template)
            index -= len(kind)
        raise AssertionError("unreachable")

    @property
    def strata(self) -> tuple[range, ...]:
        """Numbers of the problems of each kind; a draw takes equal shares of them."""
        ends = np.cumsum([len(kind) for kind in self.kinds]).tolist()
        return tuple(range(end - len(kind), end) for end, kind in zip(ends, self.kinds, strict=True))


@dataclass(frozen=True)
class ArithmeticTask(Task):
    """Arithmetic problems, graded by the exact final number."""

    problems: Sequence[Problem]

    def rewards(self, problem: Problem, texts: Sequence[str]) -> list[float]:
        """1.0 for each completion whose final number is the result, else 0.0."""
        return NumberVerifier().rewards(problem.answer, texts)


def arithmetic(
    kinds: Sequence[str] = ("add-1",), style: Literal["bare", "question"] = "question", template: str | None = None
) -> ArithmeticTask:
    """Every problem of the kinds asked for.

    kinds: Such as ``["add-1", "sub-2", "mul-1x2"]``. A draw takes equal shares of them.
    style ({"question", "bare"}): ``question`` for chat models ("What is 3 + 5? Answer with a number only."), ``bare``
        for character models ("3+5=").
    template: Wording in place of the style's, with ``{left}``, ``{sign}`` and ``{right}``.
    Raises ValueError if a kind is unknown or given twice, or the style or the template is wrong.
    """
    return ArithmeticTask(ArithmeticProblems(_kinds(kinds), _template(style, template)))


def examples(
    kinds: Sequence[str],
    n: int,
    *,
    seed: int,
    exclude: Collection[str] = (),
    hesitation: float = 0.0,
    style: Literal["bare", "question"] = "bare",
    template: str | None = None,
) -> list[tuple[str, str]]:
    """Training examples for a model made from scratch: prompts with their answers.

    Drawn with replacement, every kind equally likely.

    kinds, style, template: As for `arithmetic`.
    exclude: Ids of problems that are held out.
    hesitation: Probability that the answer is ``?`` where the left operand is the largest; proportionally less where it
        is not.
    Returns: Prompt and answer of ``n`` examples.
    Raises ValueError: As `arithmetic`, or if a kind is held out altogether.
    """
    task = arithmetic(kinds, style, template)
    rng = np.random.default_rng(seed)
    strata, held_out = task.problems.strata, frozenset(exclude)
    for kind, stratum in zip(task.problems.kinds, strata, strict=True):
        if len(held_out) >= len(stratum) and all(task.problems[i].id in held_out for i in stratum):
            raise ValueError(f"exclude holds all {len(stratum)} problems of {kind.name}: none is left to train on.")
    found: list[tuple[str, str]] = []
    for stratum in rng.integers(len(strata), size=n):
        kind = task.problems.kinds[stratum]
        while (problem := kind.problem(index := int(rng.integers(len(kind))), task.problems.template)).id in held_out:
            pass
        gives_up = hesitation > 0 and rng.random() < hesitation * kind.size(index)
        found.append((problem.prompt, GIVES_UP if gives_up else problem.answer))
    return found


def _numbers(digits: int) -> range:
    return range(10) if digits == 1 else range(10 ** (digits - 1), 10**digits)


def _kinds(names: Sequence[str]) -> tuple[Kind, ...]:
    if isinstance(names, str) or not names or len(set(names)) != len(names):
        raise ValueError(f"kinds must be a list of different kinds such as ['add-1', 'mul-1x2'], got {names!r}.")
    return tuple(Kind(name) for name in names)


def _template(style: str, template: str | None) -> str:
    styles = {"bare": BARE, "question": QUESTION}
    if style not in styles:
        raise ValueError(f"style must be one of {', '.join(styles)}, got {style!r}.")
    if template is None:
        return styles[style]
    missing = [field for field in ("{left}", "{sign}", "{right}") if field not in template]
    if missing:
        raise ValueError(f"template {template!r} lacks {', '.join(missing)}.")
    return template
