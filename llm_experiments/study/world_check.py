"""Could a difference show? What is measured of a world, apart from the designs that are compared in it.

- *Headroom*: what the base model can, and how far the reference gets with eight times the completions.
- *Noise binds*: these are eight times as many in every update, and as many updates. If that is no better, useful
  completions are not what limits learning.
- *Cells are independent*: trained on one half of the cells, the others gain nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from llm_experiments.tasks.base import Task
from llm_experiments.tasks.cells import CellsTask

from .config import StudyConfig
from .curves import Tasks, learning_curves

MORE = 8  # times the completions
CHECK_COLUMNS = ["quantity", "design", "accuracy", "se", "runs"]
CHECKS = 3  # stacks that are trained


def world_check(
    study: StudyConfig, folder: Path, base: int, rates: Mapping[str, float], done: Callable[[], None]
) -> pd.DataFrame:
    """Greedy accuracy on test problems in five situations, over the seeds that choose the rates.

    Parameters
    ----------
    study : StudyConfig
        Of a world of habits.
    folder : Path
        Of the base model.
    base : int
        Its seed.
    rates : mapping
        Learning rate of the reference and of the recommended design.
    done : callable
        Called after each stack.

    Returns
    -------
    DataFrame
        Columns `CHECK_COLUMNS`; standard errors over runs.
    """
    rows: list[tuple[str, str, float, float, int]] = []

    def trained(design: str, tasks: Tasks, times: int) -> pd.DataFrame:
        setting = study.setting(design)
        more = setting.model_copy(update={"completions": times * setting.completions, "budget": times * setting.budget})
        tests = study.tests.model_copy(update={"every": more.budget})
        own = [rates[design]] * len(study.rate_seeds)
        curves = learning_curves(tests, more, tasks, study.rate_seeds, own, folder)
        done()
        return curves

    def note(quantity: str, design: str, values: pd.Series) -> None:
        rows.append((quantity, design, float(values.mean()), float(values.sem()), len(values)))

    everything = Tasks.of(study.world, base, study.rate_seeds)
    large = trained(study.reference, everything, MORE)
    first, last = (large[large["generated"] == at]["greedy"] for at in (0, large["generated"].max()))
    note("base model", study.reference, first)
    note(f"{MORE} times the completions in as many updates", study.reference, last)
    plain = trained(study.reference, everything, 1)
    note("as compared", study.reference, plain[plain["generated"] > 0]["greedy"])
    half = _halved(everything)
    apart = trained(study.recommended, half, 1)
    for moment, at in (("before", apart["generated"] == 0), ("after", apart["generated"] > 0)):
        note(f"cells that are not trained on, {moment}", study.recommended, apart[at]["greedy"])
    return pd.DataFrame(rows, columns=CHECK_COLUMNS)


def _halved(tasks: Tasks) -> Tasks:
    """Pools of problems that are made of one half of the cells alone, tests of those made of the other half."""
    cells = sorted(set().union(*_cells(tasks.test).values()))
    known = frozenset(cells[: len(cells) // 2])
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
