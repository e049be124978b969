"""Cells: small things to learn one by one, of which a synthetic task's prompts consist.

A model made from scratch answers a cell rightly with the cell's own chance, and else mostly by a habit that is wrong.
Where the habit is likelier than the right answer, greedy decoding is wrong until reinforcement learning has turned that
one cell round.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from .base import Problem, Task

Kind = Literal["solved", "right_mode", "wrong_mode", "hopeless"]
KINDS: tuple[Kind, ...] = get_args(Kind)
CHANCE: Mapping[Kind, tuple[float, float]] = {
    "solved": (0.97, 0.995),
    "right_mode": (0.45, 0.75),
    "wrong_mode": (0.05, 0.35),
    "hopeless": (0.0, 0.0),
}
"""Between what bounds the chance of the right answer lies in the examples that a model is made from. At the lower end
of ``right_mode`` the habit is as likely as the right answer."""
HABIT = 0.85  # share of the habit among a cell's wrong answers; the others are spread evenly
DIGITS, UNSAID = "0123456789", "!"  # answers, and one that is never heard
LETTERS = "abcdefgh"  # of free thoughts before an answer


@dataclass(frozen=True)
class Cell:
    """One thing to learn.

    chance: Of the right answer, in the examples that a model is made from.
    right, habit: The right answer and the habitual one.
    others: Rarer wrong answers, as likely as each other.
    """

    kind: Kind
    chance: float
    right: str
    habit: str
    others: Sequence[str]

    def spoken(self, rng: np.random.Generator) -> str:
        """What a made model says, drawn once."""
        if rng.random() < self.chance:
            return self.right
        if rng.random() < HABIT:
            return self.habit
        return str(rng.choice(self.others))


@dataclass(frozen=True)
class CellsTask(Task):
    """Problems of a synthetic task, graded by the exact answer after free letters.

    cells: The cells that each problem, named by its id, is made of.
    """

    problems: Sequence[Problem]
    cells: Mapping[str, frozenset[str]]

    def rewards(self, problem: Problem, texts: Sequence[str]) -> list[float]:
        """1.0 for each completion that is the answer after any free letters, else 0.0."""
        return [float(text.lstrip(LETTERS) == problem.answer) for text in texts]


def draw_cells(answers: Sequence[str], shares: Mapping[Kind, float], rng: np.random.Generator) -> tuple[Cell, ...]:
    """Cells whose answers are digits, of each kind in given shares, in random order.

    Hopeless cells' right answer is not a digit, and so nothing that a made model has ever said.

    answers: Digit that is each cell's right answer unless the cell is hopeless.
    shares: Kind to its share; they sum to 1.
    """
    ends = np.round(np.cumsum([shares[kind] for kind in KINDS]) * len(answers)).astype(int)
    kinds = np.array(KINDS)[np.searchsorted(ends, np.arange(len(answers)), side="right")]
    return tuple(_cell(*each, rng) for each in zip(rng.permutation(kinds).tolist(), answers, strict=True))


def thought(length: int, rng: np.random.Generator) -> str:
    """Free letters."""
    return "".join(LETTERS[i] for i in rng.integers(len(LETTERS), size=length))


def _cell(kind: Kind, answer: str, rng: np.random.Generator) -> Cell:
    first, second = rng.choice(list(DIGITS), size=2, replace=False).tolist()
    habit = first if first != answer else second
    right = UNSAID if kind == "hopeless" else answer
    others = tuple(other for other in DIGITS if other not in (right, habit))
    return Cell(kind, float(rng.uniform(*CHANCE[kind])), right, habit, others)
