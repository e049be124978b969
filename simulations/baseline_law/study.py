"""The runs of a cell: its bases, the search for rates, and the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import groupby

import numpy as np
import pandas as pd

from simulations.baseline_law.cells import BASES, SEEDS, TUNING_SEEDS, Cell
from simulations.baseline_law.designs import DESIGNS
from simulations.baseline_law.endpoints import area
from simulations.baseline_law.rates import rates_of_bases, search
from simulations.baseline_law.training import FEW_CHECKS, Draws, curves
from simulations.baseline_law.world import World
from simulations.harness import Streams

SEED = 0
RUN_STRIDE = 1000  # runs of base b are replicates b * RUN_STRIDE + seed


@cache
def bases(cell: Cell) -> World:
    """The cell's bases, which cells of one world share."""
    streams = Streams(SEED, f"baseline law, world {cell.world}", range(BASES))
    return World.of(cell.spec, streams.generators("world"))


def draws(cell: Cell, purpose: str, seeds: int) -> Draws:
    """Random numbers of so many runs on each base; those of one purpose are no other's."""
    runs = [(base, seed) for base in range(BASES) for seed in range(seeds)]
    streams = Streams(SEED, f"baseline law, {cell.name}, {purpose}", [b * RUN_STRIDE + s for b, s in runs])
    return Draws.of(streams, [base for base, _ in runs], cell.spec.prompts, cell.budget)


def tuned(cell: Cell) -> pd.DataFrame:
    """``cell, design, base, rate, area, se`` of every rate that was tried, and the mean accuracy at each of few checks.

    Means over the tuning seeds.

    Raises
    ------
    RateAtEdge
        If a design's best rate is at an edge of its grid.
    """
    numbers, world = draws(cell, "tuning", TUNING_SEEDS), bases(cell).astype(np.float32)
    checks, rows = cell.budget.checks(FEW_CHECKS), list[tuple[object, ...]]()

    def areas(pairs: Sequence[tuple[str, float]]) -> np.ndarray:
        found = np.empty((len(pairs), BASES))
        for _, members in groupby(sorted(enumerate(pairs), key=_by_size), key=lambda m: _by_size(m)[0]):
            places, own = zip(*members, strict=True)
            names = [name for name, _ in own]
            rates = np.tile([rate for _, rate in own], (len(numbers.bases), 1))
            curve = curves(world, numbers, names, rates, cell.optimiser, cell.budget, FEW_CHECKS)
            each = area(curve, checks).reshape(BASES, TUNING_SEEDS, -1)
            level = curve.reshape(BASES, TUNING_SEEDS, len(names), -1).mean(axis=1)
            found[list(places)] = each.mean(axis=1).T
            error = each.std(axis=1, ddof=1) / TUNING_SEEDS**0.5
            rows.extend(
                (cell.name, name, base, rate, each[base, :, k].mean(), error[base, k], *level[base, k])
                for k, (name, rate) in enumerate(own)
                for base in range(BASES)
            )
        return found

    search(cell.designs, cell.first_rates, areas, cell=cell.name)
    frame = pd.DataFrame(rows, columns=["cell", "design", "base", "rate", "area", "se", *_names(cell, checks)])
    return frame.sort_values(["design", "base", "rate"], ignore_index=True)


def chosen(tuning: pd.DataFrame) -> pd.DataFrame:
    """Best rate of each design (columns) on each base (index).

    Raises
    ------
    RateAtEdge
        If one is at an edge.
    """
    cell = tuning["cell"].iloc[0]
    found = {}
    for design, own in tuning.groupby("design", sort=False):
        table = own.pivot_table(index="rate", columns="base", values="area")
        areas = {rate: table.loc[rate].to_numpy() for rate in table.index}
        found[design] = rates_of_bases(areas, design=str(design), cell=cell)
    return pd.DataFrame(found)


def compared(cell: Cell, rates: pd.DataFrame) -> pd.DataFrame:
    """``cell, design, base, seed, area`` and the accuracy at each check, of the comparison's runs.

    Parameters
    ----------
    cell : Cell
    rates : DataFrame
        From `chosen`.
    """
    numbers, world = draws(cell, "comparison", SEEDS), bases(cell).astype(np.float32)
    checks = cell.budget.checks()
    parts = []
    for _, members in groupby(cell.designs, key=lambda name: DESIGNS[name].group_size):
        names = list(members)
        own = rates[names].to_numpy()[numbers.bases]
        curve = curves(world, numbers, names, own, cell.optimiser, cell.budget)
        for k, name in enumerate(names):
            frame = pd.DataFrame(curve[:, k], columns=_names(cell, checks))
            frame.insert(0, "area", area(curve[:, k], checks))
            frame.insert(0, "seed", np.tile(np.arange(SEEDS), BASES))
            frame.insert(0, "base", numbers.bases)
            frame.insert(0, "design", name)
            frame.insert(0, "cell", cell.name)
            parts.append(frame)
    return pd.concat(parts, ignore_index=True)


def _names(cell: Cell, checks: np.ndarray) -> list[str]:
    """Completions at checks, as columns are called."""
    return [str(each * cell.batch) for each in checks]


def _by_size(member: tuple[int, tuple[str, float]]) -> tuple[int, str, float]:
    name, rate = member[1]
    return DESIGNS[name].group_size, name, rate
