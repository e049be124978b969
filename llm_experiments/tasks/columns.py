"""A synthetic task of sums of three-digit numbers, with wrong habits in single columns.

A column is a pair of digits and what is carried into it: 200 cells, each with its own chance of being written rightly
and its own wrong habit. A sum, such as ``347+285=``, is answered column by column from the ones up, after free letters:
``ca2360``. It is right if all of its columns are, so its value is a product: values are spread widely, a reward does
not say which column was wrong, and what is learnt in one sum helps all others that share a column with it. Sums with a
hopeless column earn nothing, whatever the answer.
"""

from collections.abc import Mapping
from itertools import product
from typing import Literal

import numpy as np

from .base import Problem
from .cells import KINDS, Cell, CellsTask, Kind, draw_cells, thought

SHARES: Mapping[Kind, float] = {"solved": 0.62, "right_mode": 0.15, "wrong_mode": 0.19, "hopeless": 0.04}
"""Of the kinds of columns. A sum's kind is that of its worst column; of sums that makes .24, .22, .43 and .12."""
SIZES: Mapping[str, int] = {"test": 256, "validation": 256, "train": 4096}
PLACES = 3
THOUGHTS = 2  # free letters before each answer
NUMBERS = 10**PLACES


def columns(world: int = 0, split: Literal["train", "validation", "test"] = "train") -> CellsTask:
    """The sums of one split of a world; no sum is in two of them.

    world: Seed of the world: its habits, and which sums there are. The same number is given for all splits and for the
        examples.
    Raises ValueError if the split is unknown.
    """
    if split not in SIZES:
        raise ValueError(f"split must be one of {', '.join(SIZES)}, got {split!r}.")
    begin = sum(SIZES[name] for name in list(SIZES)[: list(SIZES).index(split)])
    cells = _cells(world)
    rows = np.random.default_rng([world, 1]).choice(NUMBERS**2, size=sum(SIZES.values()), replace=False)
    found = {}
    for row in rows[begin : begin + SIZES[split]].tolist():
        problem, names = _problem(world, *divmod(row, NUMBERS), cells)
        found[problem] = frozenset(names)
    return CellsTask(tuple(found), {problem.id: names for problem, names in found.items()})


def examples(n: int, *, seed: int, world: int = 0) -> list[tuple[str, str]]:
    """Prompts, and what a model made of them shall say: each column as its habits are.

    All sums come alike, those held out from training too: the model that is made has its habits everywhere.

    world: As for `columns`.
    """
    rng = np.random.default_rng(seed)
    cells = _cells(world)
    found = []
    for first, second in rng.integers(NUMBERS, size=(n, 2)).tolist():
        names, carry = _columns(first, second)
        said = "".join(cells[name].spoken(rng) for name in names)
        found.append((_prompt(first, second), f"{thought(THOUGHTS, rng)}{said}{carry}"))
    return found


def _cells(world: int) -> dict[str, Cell]:
    names = {_name(*each): str(sum(each) % 10) for each in product(range(10), range(10), range(2))}
    drawn = draw_cells(list(names.values()), SHARES, np.random.default_rng(world))
    return dict(zip(names, drawn, strict=True))


def _columns(first: int, second: int) -> tuple[list[str], int]:
    """The names of a sum's columns from the ones up, and the last carry."""
    names, carry = [], 0
    for _ in range(PLACES):
        first, a = divmod(first, 10)
        second, b = divmod(second, 10)
        names.append(_name(a, b, carry))
        carry = (a + b + carry) // 10
    return names, carry


def _problem(world: int, first: int, second: int, cells: Mapping[str, Cell]) -> tuple[Problem, list[str]]:
    names, carry = _columns(first, second)
    prompt = _prompt(first, second)
    problem = Problem(
        id=f"columns/{world}/{prompt[:-1]}",
        prompt=prompt,
        answer="".join(cells[name].right for name in names) + str(carry),
        level=max((cells[name].kind for name in names), key=KINDS.index),
    )
    return problem, names


def _prompt(first: int, second: int) -> str:
    return f"{first:0{PLACES}}+{second:0{PLACES}}="


def _name(a: int, b: int, carry: int) -> str:
    return f"{a}+{b}+{carry}"
