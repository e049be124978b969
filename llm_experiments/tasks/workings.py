"""A synthetic task in which values, and the noise of a completion, are like those of a real run.

A prompt names a problem by two letters and has a digit that does not matter, such as ``kd7=``. A completion is a
working of 24 letters, ``bacf...``. Its letters follow from the prompt and from each other, and most are uncertain.
Each letter takes a problem further or back, as both letters of its name say, in each third of a working in another
way. A working is right if it comes as far as the problem's bar. So many workings are right, each of them rare; a
reward depends on every token a little; wrong completions look like right ones; and what is learnt of one problem
helps others that share a letter with it.

No token is the answer. A sketch of this task had an answer letter behind 24 letters (one base model, 64 prompts, 16
completions each). That letter alone made .45 of a completion's noise in Adam's units, .51 after 2,048 completions,
and .96 of the squared norm of prompts' mean gradients, with a fortieth of the entropy.

Values are spread as in a run of Qwen2.5-Math-1.5B with GRPO and eight completions (Wang et al., 2025,
``data/acc_step_500.json`` of github.com/ypwang61/One-Shot-RLVR). The chance of a right working is drawn from
`FIRST_VISITS`. Hopeless problems can be solved, though rarely.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal

import numpy as np
from scipy.special import ndtri

from .base import Problem
from .cells import HABIT, CellsTask, Kind

LETTERS = "abcdefghijklmnop"  # of problems' names and of workings: they share their embeddings
SPLITS: Mapping[str, range] = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}
LENGTH, STAGES = 24, 3  # letters of a working, and its parts, in which letters are worth different things
FIRST_VISITS = (0.345, 0.685)
"""Parameters of the beta distribution that is likeliest for the first visits of 629 prompts of the real run. With eight
completions it leaves .36 of the prompts without a right one (real: .36) and .09 without a wrong one (.07)."""
LEAST = 0.002  # chance: bars further out would rest on what few drawn workings say of rare ones
KINDS_BELOW: Mapping[Kind, float] = {"hopeless": 1 / 16, "wrong_mode": HABIT / (1 + HABIT), "right_mode": 15 / 16}
"""Chance below which a problem is of a kind, about as in the other tasks; others are solved."""
DRAWN = 512  # workings of each problem from which its bar is set
AFTER = 0.7  # spread of log odds by the letter before; that by each letter of a name is 1
PREFERENCE = 0.15  # correlation of letters' log odds and worth: wrong workings are a little more surprising


@dataclass(frozen=True, eq=False)
class World:
    """What a model is made from, and what workings are graded by.

    chances (ndarray, shape (problems,)): Of a right working, in the examples that a model is made from, as if what
        workings come to were normal.
    begin, follow (ndarray, shapes (problems, letters) and (stages, problems, letters, letters)): Distribution functions
        of a working's first letter, and of the next by the letter before.
    worth (ndarray, shape (stages, problems, letters)): How much further each letter takes a problem.
    bars (ndarray, shape (problems,)): What right workings' letters are worth together, at least.
    """

    chances: np.ndarray
    begin: np.ndarray
    follow: np.ndarray
    worth: np.ndarray
    bars: np.ndarray


@dataclass(frozen=True)
class WorkingsTask(CellsTask):
    """Problems graded by what the letters of a working are worth together.

    worth: Of letters in each stage, by a problem's id.
    """

    worth: Mapping[str, Sequence[Mapping[str, float]]]

    def rewards(self, problem: Problem, texts: Sequence[str]) -> list[float]:
        """1.0 for each text of the right length whose letters are together worth the answer, the bar, else 0.0."""
        return [float(self._worth(problem, text) >= float(problem.answer)) for text in texts]

    def _worth(self, problem: Problem, text: str) -> float:
        worth = self.worth[problem.id]
        whole = len(text) == LENGTH and set(text) <= set(LETTERS)
        return sum(worth[stage_of(at)][letter] for at, letter in enumerate(text)) if whole else -np.inf


def workings(world: int = 0, split: Literal["train", "validation", "test"] = "train") -> WorkingsTask:
    """All problems of one split of a world.

    world: Seed of the world. The same number is given for all splits and for the examples.
    Raises ValueError if the split is unknown.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}.")
    made = _world(world)
    problems, names, worth = [], {}, {}
    for row, name in enumerate(_names()):
        of_letters = [dict(zip(LETTERS, of_stage, strict=True)) for of_stage in made.worth[:, row].tolist()]
        for digit in SPLITS[split]:
            problem = Problem(
                id=f"workings/{world}/{name}{digit}",
                prompt=_prompt(name, digit),
                answer=repr(float(made.bars[row])),
                level=kind_of(float(made.chances[row])),
            )
            problems.append(problem)
            names[problem.id], worth[problem.id] = frozenset([name]), of_letters
    return WorkingsTask(tuple(problems), names, worth)


def examples(n: int, *, seed: int, world: int = 0) -> list[tuple[str, str]]:
    """Prompts, and what a model made of them shall say: workings, right or wrong.

    All problems and all digits come alike, those held out from training too.

    world: As for `workings`.
    """
    rng, made, names = np.random.default_rng(seed), _world(world), _names()
    problems, digits = rng.integers(len(names), size=n), rng.integers(10, size=n).tolist()
    texts = np.array(list(LETTERS))[_drawn(made.begin, made.follow, problems, rng)].tolist()
    return [
        (_prompt(names[problem], digit), "".join(text))
        for problem, digit, text in zip(problems.tolist(), digits, texts, strict=True)
    ]


def kind_of(chance: float) -> Kind:
    """The kind of a problem by its chance; see `KINDS_BELOW`."""
    return next((kind for kind, end in KINDS_BELOW.items() if chance < end), "solved")


def stage_of(place: int) -> int:
    """The part of a working in which a letter stands."""
    return place * STAGES // LENGTH


@lru_cache(maxsize=16)
def _world(seed: int) -> World:
    rng, size = np.random.default_rng(seed), len(LETTERS)

    def by_name() -> np.ndarray:
        """Sums of standard normals, one for each letter of a name and each letter, shape (stages, problems, size)."""
        first, second = rng.normal(size=(2, STAGES, size, size))
        return (first[:, :, None] + second[:, None]).reshape(STAGES, -1, size)

    log_odds = by_name()
    worth = PREFERENCE * log_odds + np.sqrt(1 - PREFERENCE**2) * by_name()
    after = AFTER * rng.normal(size=(size, size))
    begin, follow = _distribution(log_odds[0]), _distribution(log_odds[:, :, None] + after)
    problems = np.repeat(np.arange(size**2), DRAWN)
    drawn = _drawn(begin, follow, problems, rng)
    stages = [stage_of(place) for place in range(LENGTH)]
    reached = worth[stages, problems[:, None], drawn].sum(1).reshape(-1, DRAWN)
    chances = rng.beta(*FIRST_VISITS, size=size**2).clip(LEAST, 1 - LEAST)
    return World(chances, begin, follow, worth, reached.mean(1) - ndtri(chances) * reached.std(1))


def _drawn(begin: np.ndarray, follow: np.ndarray, problems: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Numbers of the letters of one working for each problem given, shape (workings, LENGTH)."""
    uniform = rng.random((len(problems), LENGTH))
    letters = [(begin[problems] <= uniform[:, :1]).sum(1)]
    for place in range(1, LENGTH):
        after = follow[stage_of(place), problems, letters[-1]]
        letters.append((after <= uniform[:, place : place + 1]).sum(1))
    return np.stack(letters, 1)


def _distribution(log_odds: np.ndarray) -> np.ndarray:
    """Distribution functions, the last value exactly 1."""
    mass = np.exp(log_odds).cumsum(-1)
    return mass / mass[..., -1:]


def _names() -> list[str]:
    return [first + second for first, second in product(LETTERS, LETTERS)]


def _prompt(name: str, digit: int) -> str:
    return f"{name}{digit}="
