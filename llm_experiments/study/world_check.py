"""Could a difference show? What is measured of a world, apart from the designs that are compared in it.

- *Headroom*: what the base models can, each of them, and how far the reference gets with eight times the completions.
- *Noise binds*: these are eight times as many in every update, and as many updates. If that is no better, useful
  completions are not what limits learning.
- *Cells are independent*: trained on one half of the cells, the others gain nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from transformers import AutoTokenizer

from llm_experiments.tasks.base import Task
from llm_experiments.tasks.cells import CellsTask
from llm_experiments.training.stacked.codec import TokenCodec
from llm_experiments.training.stacked.loop import StackedTraining

from .config import StudyConfig
from .curves import Tasks, Tests, learning_curves

MORE = 8  # times the completions
CHECK_COLUMNS = ["quantity", "design", "accuracy", "se", "runs"]
CHECKS = 3  # stacks that are trained
HALVES = 0  # seed of the halves


def world_check(
    study: StudyConfig,
    folders: Mapping[int, Path],
    rates: Mapping[str, float],
    done: Callable[[], None],
    device: str = "cpu",
) -> pd.DataFrame:
    """Greedy accuracy on test problems of each base model, and of the first one in four more situations.

    Parameters
    ----------
    study : StudyConfig
        Of a made world.
    folders : mapping of int to Path
        Of the base models, by their seeds.
    rates : mapping
        Learning rate of the reference and of the recommended design.
    done : callable
        Called after each stack.
    device : str

    Returns
    -------
    DataFrame
        Columns `CHECK_COLUMNS`; standard errors over the runs of the seeds that choose the rates.
    """
    base, folder = next(iter(folders.items()))
    rows: list[tuple[str, str, float, float, int]] = []

    def trained(design: str, tasks: Tasks, times: int) -> pd.DataFrame:
        setting = study.setting(design)
        more = setting.model_copy(update={"completions": times * setting.completions, "budget": times * setting.budget})
        tests = study.tests.model_copy(update={"every": more.budget})
        own = [rates[design]] * len(study.rate_seeds)
        curves = learning_curves(tests, more, tasks, study.rate_seeds, own, folder, device=device)
        done()
        return curves

    def note(quantity: str, design: str, values: pd.Series) -> None:
        rows.append((quantity, design, float(values.mean()), float(values.sem()), len(values)))

    everything = Tasks.of(study.world, base, study.rate_seeds)
    for seed, each in folders.items():
        note(f"base model {seed}", study.reference, _untrained(study, seed, each, device)["greedy"])
    large = trained(study.reference, everything, MORE)
    last = large[large["generated"] == large["generated"].max()]["greedy"]
    note(f"{MORE} times the completions in as many updates", study.reference, last)
    plain = trained(study.reference, everything, 1)
    note("as compared", study.reference, plain[plain["generated"] > 0]["greedy"])
    half = _halved(everything)
    apart = trained(study.recommended, half, 1)
    for moment, at in (("before", apart["generated"] == 0), ("after", apart["generated"] > 0)):
        note(f"cells that are not trained on, {moment}", study.recommended, apart[at]["greedy"])
    return pd.DataFrame(rows, columns=CHECK_COLUMNS)


def _untrained(study: StudyConfig, base: int, folder: Path, device: str) -> pd.DataFrame:
    seeds = study.rate_seeds
    tasks = Tasks.of(study.world, base, seeds)
    codec = TokenCodec(AutoTokenizer.from_pretrained(folder))
    rates = [study.rates[0]] * len(seeds)
    stack = StackedTraining(
        study.setting(study.reference), [folder] * len(seeds), tasks.pools, seeds, codec, rates, device
    )
    tests = Tests(study.tests, stack, [tasks.validation] * len(seeds), [tasks.test] * len(seeds), seeds)
    return tests.rows(passes=False)


def _halved(tasks: Tasks) -> Tasks:
    """Pools of problems that are made of one half of the cells alone, tests of those made of the other half."""
    cells = sorted(set().union(*_cells(tasks.test).values()))
    rows = np.random.default_rng(HALVES).permutation(len(cells))  # names' order may have a meaning
    known = frozenset(cells[row] for row in rows[: len(cells) // 2].tolist())
    return Tasks(
        [_within(pool, known) for pool in tasks.pools],
        _within(tasks.validation, frozenset(cells) - known),
        _within(tasks.test, frozenset(cells) - known),
    )


def _within(task: Task, cells: frozenset[str]) -> Task:
    made_of = _cells(task)
    return replace(task, problems=[each for each in task.problems if made_of[each.id] <= cells])


def _cells(task: Task) -> Mapping[str, frozenset[str]]:
    if not isinstance(task, CellsTask):
        raise ValueError("check: only made worlds have cells to leave out.")
    return task.cells
