"""A made world of many small facts, each with its own wrong habit.

A prompt names a cell by two letters and has a digit that does not matter, such as ``Kd7=``. The answer is the cell's
own digit after free letters: ``bacf2``. Nothing that is learnt in one cell says anything about another, so that what
limits learning is how many useful completions each cell gets. The prompts that end with 8 and 9 are never trained on:
they are held out for validation and test, in every cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Literal

import numpy as np

from .base import Problem
from .cells import Cell, CellsTask, draw_cells, thought

FIRST, SECOND = "ABCDEFGHIJKLMNOP", "abcdefghijklmnop"
SHARES = {"solved": 0.25, "right_mode": 0.25, "wrong_mode": 0.25, "hopeless": 0.25}
SPLITS: Mapping[str, range] = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}


def habits(
    world: int = 0, split: Literal["train", "validation", "test"] = "train", shares: Mapping[str, float] = SHARES
) -> CellsTask:
    """All problems of one split of a world.

    Parameters
    ----------
    world : int
        Seed of the world: which cells there are. The same number is given for all splits and for the examples.
    split : {"train", "validation", "test"}
    shares : mapping
        Of the kinds of cells; see `cells.KINDS`.

    Raises
    ------
    ValueError
        If the split is unknown or the shares are wrong.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}.")
    cells = _cells(world, shares)
    problems = {_problem(world, name, cell, digit): name for name, cell in cells.items() for digit in SPLITS[split]}
    return CellsTask(tuple(problems), {problem.id: frozenset([name]) for problem, name in problems.items()})


def examples(
    n: int,
    *,
    seed: int,
    world: int = 0,
    shares: Mapping[str, float] = SHARES,
    thoughts: int = 4,
) -> list[tuple[str, str]]:
    """Prompts, and what a model made of them shall say: mostly its habits.

    All cells and all digits come alike, those held out from training too: the model that is made has its habits
    everywhere.

    Parameters
    ----------
    n, seed : int
    world, shares
        As for `habits`.
    thoughts : int
        Free letters before each answer.

    Returns
    -------
    list of (str, str)
    """
    rng = np.random.default_rng(seed)
    cells = list(_cells(world, shares).items())
    found = []
    for index, digit in zip(rng.integers(len(cells), size=n).tolist(), rng.integers(10, size=n).tolist(), strict=True):
        name, cell = cells[index]
        found.append((_prompt(name, digit), f"{thought(thoughts, rng)}{cell.spoken(rng)}"))
    return found


def _cells(world: int, shares: Mapping[str, float]) -> dict[str, Cell]:
    names = [first + second for first, second in product(FIRST, SECOND)]
    return dict(zip(names, draw_cells(len(names), shares, np.random.default_rng(world)), strict=True))


def _problem(world: int, name: str, cell: Cell, digit: int) -> Problem:
    return Problem(
        id=f"habits/{world}/{name}{digit}",
        prompt=_prompt(name, digit),
        answer=cell.right,
        level=cell.kind,
    )


def _prompt(name: str, digit: int) -> str:
    return f"{name}{digit}="
