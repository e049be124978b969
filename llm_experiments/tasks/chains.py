"""A made world of chains: three digits added and subtracted step by step, with wrong habits in single steps.

The problems are those that `reasoning_gym` calls ``chain_sum``, with three terms of one digit each: ``4 + 3 - 5 =``. A
model is taught to write the step that it takes and then the result, ``7-5=2``. A step is a number so far, a sign and a
digit, 560 on right ways and 680 with those from wrong numbers, each with its own chance of being taken rightly and its
own wrong habit. A step goes on from what has been *written*: other than in the worlds of habits and of columns, the
text before an answer decides what the answer is. The reward is `reasoning_gym`'s full score, for the result alone; its
partial scores count 0. A working can also be in sentences, of 60 to 80 tokens of a language model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import Literal, get_args

import numpy as np

from .base import Problem
from .cells import CHANCE, KINDS, Cell, CellsTask, Kind, draw_kinds, rows_of

SHARES = {"solved": 0.50, "right_mode": 0.19, "wrong_mode": 0.25, "hopeless": 0.06}
"""Of the kinds of steps. A chain's kind is that of its worse step; of chains that makes about .25, .23, .41 and .12."""
SIZES: Mapping[str, int] = {"test": 256, "validation": 256, "train": 3488}
QUESTION = "State the final answer to the following arithmetic problem: {} ="
SIGNS = "+-"
OFF = (-3, -2, -1, 1, 2, 3)  # what wrong steps are wrong by

TOLD_FIRST = ("Let us take this one step at a time.", "Two steps are needed here.", "I go from the left to the right.")
TOLD_STEPS: Mapping[str, tuple[str, ...]] = {
    "+": ("{place}, I add {digit} to {so_far}, which makes", "{place}, the number {so_far} grows by {digit}, so"),
    "-": ("{place}, I take {digit} away from {so_far}, which leaves", "{place}, {so_far} goes down by {digit}, so"),
}
TOLD_LAST = (
    "With this all of the numbers are used, and the result is",
    "Nothing is left to do, so the final answer is",
)

Wording = Literal["expression", "question"]
Working = Literal["steps", "told"]
Chain = tuple[int, str, int, str, int]


@dataclass(frozen=True)
class ChainsTask(CellsTask):
    """Chains, graded by the number after the last ``=``."""

    def rewards(self, problem: Problem, texts: Sequence[str]) -> list[float]:
        """1.0 for each completion that ends in the result, read as `reasoning_gym` reads numbers, else 0.0."""
        return [float(_equal(text.rpartition("=")[2], problem.answer)) for text in texts]


def chains(
    world: int = 0,
    split: Literal["train", "validation", "test"] = "train",
    shares: Mapping[str, float] = SHARES,
    wording: Wording = "expression",
) -> ChainsTask:
    """The chains of one split of a world; every chain is in one of them.

    Parameters
    ----------
    world : int
        Seed of the world: its habits, and which chains are in which split. The same number is given for all splits and
        for the examples.
    split : {"train", "validation", "test"}
    shares : mapping
        Of the kinds of steps; see `cells.KINDS`.
    wording : {"expression", "question"}
        What a prompt is: ``4+3-5=``, or the whole question as `reasoning_gym` asks it.

    Raises
    ------
    ValueError
        If the split or the wording is unknown, or the shares are wrong.
    """
    part = rows_of(split, SIZES)
    cells, every = _cells(world, shares), _every_chain()
    rows = np.random.default_rng([world, 1]).permutation(len(every))
    found = {}
    for row in rows[part].tolist():
        problem, names = _problem(world, every[row], cells, wording)
        found[problem] = frozenset(names)
    return ChainsTask(tuple(found), {problem.id: names for problem, names in found.items()})


def examples(
    n: int,
    *,
    seed: int,
    world: int = 0,
    shares: Mapping[str, float] = SHARES,
    wording: Wording = "expression",
    working: Working = "steps",
) -> list[tuple[str, str]]:
    """Prompts, and what a model made of them shall say: each step as its habits are, from what was said before it.

    All chains come alike, those held out from training too: the model that is made has its habits everywhere.

    Parameters
    ----------
    n, seed : int
    world, shares, wording
        As for `chains`.
    working : {"steps", "told"}
        The working: ``7-5=2``, or both steps in sentences, whose words are drawn, with the result behind the last
        ``=``.

    Returns
    -------
    list of (str, str)

    Raises
    ------
    ValueError
        If the wording or the working is unknown, or the shares are wrong.
    """
    if working not in get_args(Working):
        raise ValueError(f"working must be one of {', '.join(get_args(Working))}, got {working!r}.")
    rng = np.random.default_rng(seed)
    cells, every = _cells(world, shares), _every_chain()
    found = []
    for row in rng.integers(len(every), size=n).tolist():
        a, first, b, second, c = every[row]
        between = cells[f"{a}{first}{b}"].spoken(rng)
        step = f"{between}{second}{c}"
        end = cells[step].spoken(rng)
        said = f"{step}={end}" if working == "steps" else _told(every[row], between, end, rng)
        found.append((_prompt(every[row], wording), said))
    return found


def _told(chain: Chain, between: str, end: str, rng: np.random.Generator) -> str:
    """A working in sentences: both steps, each with what was said to come of it, and the result."""
    a, first, b, second, c = chain
    sentences = [str(rng.choice(TOLD_FIRST))]
    for place, so_far, sign, digit, said in (("First", a, first, b, between), ("Then", between, second, c, end)):
        words = str(rng.choice(TOLD_STEPS[sign])).format(place=place, so_far=so_far, digit=digit)
        sentences.append(f"{words} {so_far}{sign}{digit}={said}.")
    return " ".join([*sentences, f"{rng.choice(TOLD_LAST)} ={end}"])


def _every_chain() -> list[Chain]:
    return list(product(range(10), SIGNS, range(10), SIGNS, range(10)))


def _cells(world: int, shares: Mapping[str, float]) -> dict[str, Cell]:
    """A cell for each step, from each number that can have been written, right or wrong, after the first."""
    rng = np.random.default_rng(world)
    numbers = range(-9 + min(OFF), 18 + max(OFF) + 1)
    steps = list(product(numbers, SIGNS, range(10)))
    kinds = draw_kinds(len(steps), shares, rng)
    return {
        f"{so_far}{sign}{digit}": _cell(kind, _after(so_far, sign, digit), rng)
        for kind, (so_far, sign, digit) in zip(kinds, steps, strict=True)
    }


def _cell(kind: Kind, right: int, rng: np.random.Generator) -> Cell:
    habit, *others = (str(right + each) for each in rng.permutation(OFF).tolist())
    return Cell(kind, float(rng.uniform(*CHANCE[kind])), str(right), habit, tuple(others))


def _problem(world: int, chain: Chain, cells: Mapping[str, Cell], wording: Wording) -> tuple[Problem, list[str]]:
    a, first, b, second, c = chain
    between = _after(a, first, b)
    names = [f"{a}{first}{b}", f"{between}{second}{c}"]
    problem = Problem(
        id=f"chains/{world}/{a}{first}{b}{second}{c}",
        prompt=_prompt(chain, wording),
        answer=str(_after(between, second, c)),
        level=max((cells[name].kind for name in names), key=KINDS.index),
    )
    return problem, names


def _prompt(chain: Chain, wording: Wording) -> str:
    if wording == "expression":
        return "".join(map(str, chain)) + "="
    if wording == "question":
        return QUESTION.format(" ".join(map(str, chain)))
    raise ValueError(f"wording must be expression or question, got {wording!r}.")


def _after(number: int, sign: str, digit: int) -> int:
    return number + digit if sign == "+" else number - digit


def _equal(said: str, answer: str) -> bool:
    """Whether both are the same number: leading zeros, decimals and commas are no matter."""
    try:
        return Decimal(said.replace(",", "")) == Decimal(answer)
    except InvalidOperation:
        return False
