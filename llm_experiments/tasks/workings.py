"""A made world in which values, and the noise of a completion, are like those of a real run.

A prompt names a problem by two letters and has a digit that does not matter, such as ``kd7=``. The answer to it is a
letter after a working, ``bacf...=k``. A working is free text, whose letters follow from the prompt and from each other
and are uncertain. It matters: half of the letters help all problems with the same first letter, and the more of them a
working has, the likelier the answer behind it is right. So many workings are right, each of them rare, a reward depends
on every token a little, and wrong completions look like right ones.

Values are spread as in a run of Qwen2.5-Math-1.5B with GRPO and eight completions (Wang et al., 2025,
``data/acc_step_500.json`` of github.com/ypwang61/One-Shot-RLVR). A problem's chance is drawn from `FIRST_VISITS`. A
hopeless problem can be solved, though rarely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal

import numpy as np
from scipy.special import expit

from .base import Problem
from .cells import HABIT, CellsTask, Kind

LETTERS = "abcdefghijklmnop"  # of problems' names, of workings and of answers: they share their embeddings
SPLITS: Mapping[str, range] = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}
LENGTH = 24  # letters of a working
FIRST_VISITS = (0.345, 0.685)
"""Parameters of the beta distribution that is likeliest for the first visits of 629 prompts of the real run. With eight
completions it leaves .36 of the prompts without a right one (real: .36) and .09 without a wrong one (.07)."""
LEAST = 0.002  # chance: what a model made of examples can tell from none
KINDS_BELOW: Mapping[Kind, float] = {"hopeless": 1 / 16, "wrong_mode": HABIT / (1 + HABIT), "right_mode": 15 / 16}
"""Chance below which a problem is of a kind; others are solved. At the second the habit is as likely as the answer."""
WEIGHT = 6.0  # of a working in its answer's log odds, per standard deviation of the helpful letters' number
DRAWN = 256  # workings of each problem from which its answers' odds are set
AFTER = 0.7  # spread of log odds by the letter before, that by a name's letter being 1


@dataclass(frozen=True, eq=False)
class World:
    """What a model is made from.

    Attributes
    ----------
    chances : ndarray, shape (problems,)
        Of the right answer, over workings.
    begin, follow : ndarray, shapes (problems, letters) and (problems, letters, letters)
        Distribution functions of a working's first letter, and of the next by the letter before.
    helpful : ndarray of bool, shape (problems, letters)
    mean, spread, intercept : ndarray, shape (problems,)
        Of the number of helpful letters in a working, and of the answer's log odds at the mean.
    right, habit : ndarray of int, shape (problems,)
        Letters.
    """

    chances: np.ndarray
    begin: np.ndarray
    follow: np.ndarray
    helpful: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    intercept: np.ndarray
    right: np.ndarray
    habit: np.ndarray

    def workings(self, problems: np.ndarray, length: int, rng: np.random.Generator) -> np.ndarray:
        """Letters, shape (workings, length)."""
        return _workings(self.begin, self.follow, problems, length, rng)

    def answers(self, problems: np.ndarray, workings: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Letters behind workings, shape (workings,)."""
        helpful = self.helpful[problems[:, None], workings].sum(1)
        odds = WEIGHT * (helpful - self.mean[problems]) / self.spread[problems] + self.intercept[problems]
        stray = rng.integers(len(LETTERS), size=len(problems))
        strays = (rng.random(len(problems)) >= HABIT) & (stray != self.right[problems])
        wrong = np.where(strays, stray, self.habit[problems])
        return np.where(rng.random(len(problems)) < expit(odds), self.right[problems], wrong)


@dataclass(frozen=True)
class WorkingsTask(CellsTask):
    """Problems graded by what is behind the last ``=``."""

    def rewards(self, problem: Problem, texts: Sequence[str]) -> list[float]:
        """1.0 for each completion that ends in the answer after a working and ``=``, else 0.0."""
        return [float(text.rpartition("=")[1:] == ("=", problem.answer)) for text in texts]


def workings(
    world: int = 0, split: Literal["train", "validation", "test"] = "train", length: int = LENGTH
) -> WorkingsTask:
    """All problems of one split of a world.

    Parameters
    ----------
    world : int
        Seed of the world. The same number is given for all splits and for the examples.
    split : {"train", "validation", "test"}
    length : int
        Letters of a working. They change the world.

    Raises
    ------
    ValueError
        If the split is unknown, or the length is below 2.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}.")
    made = _world(world, length)
    found = {
        Problem(
            id=f"workings/{world}/{name}{digit}",
            prompt=_prompt(name, digit),
            answer=LETTERS[right],
            level=kind_of(chance),
        ): name
        for name, right, chance in zip(_names(), made.right.tolist(), made.chances.tolist(), strict=True)
        for digit in SPLITS[split]
    }
    return WorkingsTask(tuple(found), {problem.id: frozenset([name]) for problem, name in found.items()})


def examples(n: int, *, seed: int, world: int = 0, length: int = LENGTH) -> list[tuple[str, str]]:
    """Prompts, and what a model made of them shall say: workings and the answers that they lead to.

    All problems and all digits come alike, those held out from training too.

    Parameters
    ----------
    n, seed : int
    world, length : int
        As for `workings`.

    Returns
    -------
    list of (str, str)
    """
    rng, made, names = np.random.default_rng(seed), _world(world, length), _names()
    problems, digits = rng.integers(len(names), size=n), rng.integers(10, size=n)
    written = made.workings(problems, length, rng)
    answers = made.answers(problems, written, rng)
    letters = np.array(list(LETTERS))
    return [
        (_prompt(names[problem], digit), f"{''.join(text)}={answer}")
        for problem, digit, text, answer in zip(
            problems.tolist(), digits.tolist(), letters[written].tolist(), letters[answers].tolist(), strict=True
        )
    ]


def kind_of(chance: float) -> Kind:
    """The kind of a problem by its chance; see `KINDS_BELOW`."""
    return next((kind for kind, end in KINDS_BELOW.items() if chance < end), "solved")


@lru_cache(maxsize=16)
def _world(seed: int, length: int) -> World:
    if length < 2:
        raise ValueError(f"length must be 2 or more letters, got {length}.")
    rng, size = np.random.default_rng(seed), len(LETTERS)
    first, second = np.divmod(np.arange(size**2), size)
    by_first, by_second = rng.normal(size=(2, size, size))
    by_name = by_first[first] + by_second[second]
    after = AFTER * rng.normal(size=(size, size))
    begin, follow = _distribution(by_name), _distribution(by_name[:, None] + after)
    helpful = (rng.permuted(np.tile(np.arange(size), (size, 1)), axis=1) < size // 2)[first]
    problems = np.repeat(np.arange(size**2), DRAWN)
    drawn = _workings(begin, follow, problems, length, rng)
    count = helpful[problems[:, None], drawn].sum(1).reshape(-1, DRAWN)
    mean, spread = count.mean(1), count.std(1)
    chances = rng.beta(*FIRST_VISITS, size=size**2).clip(LEAST, 1 - LEAST)
    intercept = _intercepts(WEIGHT * (count - mean[:, None]) / spread[:, None], chances)
    right = rng.integers(size, size=size**2)
    habit = (right + rng.integers(1, size, size=size**2)) % size
    return World(chances, begin, follow, helpful, mean, spread, intercept, right, habit)


def _workings(
    begin: np.ndarray, follow: np.ndarray, problems: np.ndarray, length: int, rng: np.random.Generator
) -> np.ndarray:
    uniform = rng.random((len(problems), length))
    letters = [(begin[problems] <= uniform[:, :1]).sum(1)]
    for place in range(1, length):
        letters.append((follow[problems, letters[-1]] <= uniform[:, place : place + 1]).sum(1))
    return np.stack(letters, 1)


def _distribution(log_odds: np.ndarray) -> np.ndarray:
    """Distribution functions, the last value exactly 1."""
    mass = np.exp(log_odds).cumsum(-1)
    return mass / mass[..., -1:]


def _intercepts(log_odds: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """What is added to each row of log odds, shape (rows, draws), for a mean chance as given; by bisection."""
    low, high = np.full(len(chances), -60.0), np.full(len(chances), 60.0)
    for _ in range(50):
        middle = (low + high) / 2
        below = expit(log_odds + middle[:, None]).mean(1) < chances
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


def _names() -> list[str]:
    return [first + second for first, second in product(LETTERS, LETTERS)]


def _prompt(name: str, digit: int) -> str:
    return f"{name}{digit}="
