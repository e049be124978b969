"""One design's learning curves on one base model: its runs as one stack or several, tested along the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from transformers import AutoTokenizer

from llm_experiments.evaluation.accuracy import pass_at_k
from llm_experiments.seeding import seed_of
from llm_experiments.tasks import load_task
from llm_experiments.tasks.base import Task
from llm_experiments.tasks.cells import KINDS
from llm_experiments.training.stacked.codec import TokenCodec
from llm_experiments.training.stacked.config import StackConfig
from llm_experiments.training.stacked.loop import StackedTraining
from llm_experiments.training.stacked.testing import GREEDY, HeldOut

from .config import TestsConfig, WorldConfig

CURVE_COLUMNS = [
    "seed",
    "rate",
    "updates",
    "generated",
    "matched",
    "temperature",
    "greedy",
    "sampled",
    "passed",
    "entropy",
    *KINDS,
]
"""``matched`` is the accuracy at the ``temperature`` that is best on the validation problems, ``sampled`` that at 1,
``passed`` pass@k; then matched accuracy by kind of problem."""


@dataclass(frozen=True, eq=False)
class Tasks:
    """The problems of a stack: each run's own pool, and what all are tested on."""

    pools: Sequence[Task]
    validation: Task
    test: Task

    @classmethod
    def of(cls, world: WorldConfig, base: int, seeds: Sequence[int]) -> Tasks:
        """Those of runs with these seeds on one base model."""
        return cls(
            [load_task(world.split(base, "train", world.n_prompts), seed=seed_of(seed, "task")) for seed in seeds],
            load_task(world.split(base, "validation"), seed=0),
            load_task(world.split(base, "test"), seed=0),
        )


class Tests:
    """Validation and test problems of a stack.

    validation, test: Of each run.
    """

    __test__ = False  # pytest: no test class

    def __init__(
        self,
        config: TestsConfig,
        training: StackedTraining,
        validation: Sequence[Task],
        test: Sequence[Task],
        seeds: Sequence[int],
    ):
        self._config, self._training, self._seeds = config, training, seeds
        self._validation = HeldOut(training, validation, [seed_of(seed, "validation") for seed in seeds])
        self._test = HeldOut(training, test, [seed_of(seed, "test") for seed in seeds])
        self._kinds = np.array([[problem.level for problem in task.problems] for task in test])

    def rows(self, *, passes: bool) -> pd.DataFrame:
        """One row for each run, columns `CURVE_COLUMNS`."""
        training, temperatures = self._training, [GREEDY, *self._config.temperatures]
        valid = np.stack([self._validation.rewards(each, 1).mean((1, 2)) for each in temperatures])
        sampled = [self._test.rewards(each, self._config.samples if each != GREEDY else 1) for each in temperatures]
        tested = [each.mean(2) for each in sampled]
        best = valid.argmax(0)  # the lowest temperature of several that are as good
        matched = np.stack([tested[each][run] for run, each in enumerate(best)])
        plain = self._test.rewards(1.0, self._config.passes if passes else self._config.samples)
        frame = pd.DataFrame(
            {
                "seed": self._seeds,
                "rate": training.rates,
                "updates": training.step,
                "generated": training.generated,
                "matched": matched.mean(1),
                "temperature": np.array(temperatures)[best],
                "greedy": tested[0].mean(1),
                "sampled": plain.mean((1, 2)),
                "passed": [pass_at_k(each, self._config.passes).mean() if passes else np.nan for each in plain],
                "entropy": self._test.entropy(),
            }
        )
        for kind in KINDS:
            here = self._kinds == kind
            frame[kind] = (matched * here).sum(1) / here.sum(1)
        return frame


def learning_curves(
    config: TestsConfig,
    setting: StackConfig,
    tasks: Tasks,
    seeds: Sequence[int],
    rates: Sequence[float],
    folder: Path,
    done: Callable[[], None] = lambda: None,
    device: str = "cpu",
) -> pd.DataFrame:
    """Train a stack until every run has spent the budget; test it before, along the way and at the end.

    rates: Learning rate of each run.
    folder: Of the base model.
    done: Called after each update.
    Returns: Columns `CURVE_COLUMNS`. A run that needs more completions for its updates has fewer of them.
    """
    codec = TokenCodec(AutoTokenizer.from_pretrained(folder))
    training = StackedTraining(setting, [folder] * len(seeds), tasks.pools, seeds, codec, rates, device)
    tests = Tests(config, training, [tasks.validation] * len(seeds), [tasks.test] * len(seeds), seeds)
    found, following = [tests.rows(passes=True)], config.every
    while training.generated.min() < setting.budget:
        training.advance()
        done()
        if training.generated.min() >= min(following, setting.budget):
            found.append(tests.rows(passes=bool(training.generated.min() >= setting.budget)))
            following += config.every
    return pd.concat(found, ignore_index=True)[CURVE_COLUMNS]
