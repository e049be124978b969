"""A study from its base models to its curves; every finished piece is kept, so that it can be interrupted."""

import json
from collections.abc import Callable, Sequence
from itertools import product
from math import ceil
from pathlib import Path

import numpy as np
import pandas as pd

from kaestat.core.result_tables import write_table
from kaestat.core.storage import write_atomically
from llm_experiments.provenance import provenance
from llm_experiments.starting import ProgressBar, base_model

from .config import StudyConfig, TestsConfig
from .curves import CURVE_COLUMNS, Tasks, learning_curves
from .endpoints import area, on_grid

IDENTITY = "study.json"
CURVES, RATES, RATE_CURVES = "curves.csv.gz", "rates.csv", "rate_curves.csv.gz"
PROVENANCE = "provenance.json"
DIGITS = 5  # of tables
RATE_COLUMNS = ["base", "design", "rate", "area", "se", "chosen"]
RATE_TESTS = 4  # of a run that chooses rates, after the first
GROWTH = 4  # rates that a grid may gain
GRID = 101  # points of a curve's mean height


class Study:
    """The pieces of a study.

    runs: Folder of models and of single stacks' curves; the study's in NAME below it.
    results: Folder of result tables, the study's in NAME below it.
    progress: Makes a progress display from a part's name and its number of units.
    device: Where base models are made and runs are trained.
    stack: Runs that are trained at once at most, where models fill the memory; None trains all of a design on a base
        model.
    Raises ValueError if the folder holds a study with other settings.
    """

    def __init__(
        self,
        config: StudyConfig,
        *,
        runs: Path,
        results: Path,
        progress: ProgressBar,
        device: str = "cpu",
        stack: int | None = None,
    ):
        self.config, self._progress, self._device, self._stack = config, progress, device, stack
        self._models, self._made = runs / "models", dict[int, Path]()
        self.folder, self.results = runs / "studies" / config.name, results / "studies" / config.name
        self._check_identity()

    def _choose_rate(self, design: str, base: int) -> float:
        """The rate with the largest area, with smaller and larger ones tried beside it until the best lies inside."""
        config, path = self.config, self._rates_path(design, base)
        grid, factor = [rounded(rate) for rate in config.rates], config.rates[1] / config.rates[0]
        # Coarser tests than those of what is compared: they only have to order rates.
        tests = config.tests.model_copy(update={"every": ceil(config.budget / RATE_TESTS), "passes": 1})
        for _ in range(GROWTH + 1):
            runs = [(seed, rate) for rate in grid for seed in config.rate_seeds]
            curves = self._completed(path, design, base, runs, tests)
            heights = _heights(curves, config.budget)
            grid = heights.index.tolist()
            best = float(heights["mean"].idxmax())
            if best not in (grid[0], grid[-1]):
                return best
            grid = [rounded(grid[0] / factor), *grid] if best == grid[0] else [*grid, rounded(grid[-1] * factor)]
        raise ValueError(
            f"rates: the best learning rate of {design} on base model {base}, {best:g}, lies at the edge of "
            f"{grid[0]:g} to {grid[-1]:g} after {GROWTH} larger grids; start from other rates."
        )

    def _known_rates(self) -> pd.DataFrame:
        """Mean matched accuracy over the budget by design, rate and base model, of the runs that are there."""
        rows, curves = [], self._known_curves(self._rates_path)
        for (base, design), own in curves.groupby(["base", "design"], sort=False):
            heights = _heights(own, self.config.budget)
            best = heights["mean"].idxmax()
            rows += [(base, design, rate, *found, rate == best) for rate, *found in heights.itertuples()]
        table = pd.DataFrame(rows, columns=RATE_COLUMNS)
        self._write(curves, RATE_CURVES)
        self._write(table, RATES)
        return table

    def compare(self, designs: Sequence[str] | None = None) -> pd.DataFrame:
        """Curves of designs on all base models, on each at the rate chosen there.

        One base model is finished before the next, so that an interrupted study has all designs on some of them.

        designs: Whose missing runs are made; None takes all. The table has every design whose runs are there.
        Returns: Columns ``design, base`` and `CURVE_COLUMNS`.
        Raises ValueError if the best rate of a design still lies at an edge after `GROWTH` larger grids.
        """
        config, wanted = self.config, self._known(designs)
        for base, design in product(config.world.bases, wanted):
            rate = self._choose_rate(design, base)
            runs = [(seed, rate) for seed in config.seeds]
            self._completed(self._path(design, base), design, base, runs, config.tests)
        self._known_rates()
        table = self._known_curves(self._path)
        self._write(table, CURVES)
        return table

    def _known_curves(self, path_of: Callable[[str, int], Path]) -> pd.DataFrame:
        """As `compare`, of the runs that are there: others may work on other designs meanwhile."""
        columns, frames = ["design", "base", *CURVE_COLUMNS], []
        for base, design in product(self.config.world.bases, self.config.designs):
            curves = self._stored(path_of(design, base))
            if curves is not None:
                frames.append(curves.assign(design=design, base=base)[columns])
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)

    def _known(self, designs: Sequence[str] | None) -> list[str]:
        unknown = [name for name in designs or () if name not in self.config.designs]
        if unknown:
            raise ValueError(f"design {unknown[0]!r} is none of the study's: {', '.join(self.config.designs)}.")
        return list(designs or self.config.designs)

    def _rates_path(self, design: str, base: int) -> Path:
        return self.folder / "rates" / f"{design}-{base}.csv"

    def _path(self, design: str, base: int) -> Path:
        return self.folder / "curves" / f"{design}-{base}.csv"

    def _stored(self, path: Path) -> pd.DataFrame | None:
        return pd.read_csv(path) if path.exists() else None

    def _completed(
        self, path: Path, design: str, base: int, runs: Sequence[tuple[int, float]], tests: TestsConfig
    ) -> pd.DataFrame:
        """Curves of a design on one base model, each run with its seed and learning rate; what is done is kept."""
        found = self._stored(path)
        known = set() if found is None else set(zip(found["seed"], found["rate"], strict=True))
        missing = [run for run in runs if run not in known]
        size = self._stack or len(runs)
        for first in range(0, len(missing), size):
            made = self._trained(design, base, missing[first : first + size], path, tests)
            found = made if found is None else pd.concat([found, made], ignore_index=True)
            write_table(path, found, DIGITS)
        assert found is not None
        return pd.read_csv(path)  # as it is when it is read again: digits are rounded

    def _trained(
        self, design: str, base: int, runs: Sequence[tuple[int, float]], path: Path, tests: TestsConfig
    ) -> pd.DataFrame:
        """Curves of one stack; ``path`` tells what they are for."""
        setting, folder = self.config.setting(design), self._base(base)
        seeds, rates = zip(*runs, strict=True)
        name = f"{path.parent.name}: {path.stem}" + (f", seeds {', '.join(map(str, seeds))}" if self._stack else "")
        with self._progress(name, ceil(setting.budget / setting.completions)) as done:
            tasks = Tasks.of(self.config.world, base, seeds)
            return learning_curves(tests, setting, tasks, seeds, rates, folder, done, self._device)

    def _base(self, seed: int) -> Path:
        """The base model of a world, whose examples take seconds; each stack asks for it."""
        if seed not in self._made:
            world = self.config.world
            self._made[seed] = base_model(
                self._models,
                world.split(seed, "train"),
                world.pretraining,
                n_examples=world.n_examples,
                start=world.start,
                device=self._device,
                progress=lambda part, total: self._progress(f"{part} {seed}", total),
            )
        return self._made[seed]

    def _write(self, table: pd.DataFrame, name: str) -> None:
        write_table(self.results / name, table, DIGITS)
        origin = provenance(self.config) | {"device": self._device}
        write_atomically(self.results / PROVENANCE, json.dumps(origin, indent=1))

    def _check_identity(self) -> None:
        """Refuse curves of other settings. Designs, base models and seeds may be added."""
        path = self.folder / IDENTITY
        free = {"designs", "seeds", "reference", "recommended", "rivals"}
        identity = self.config.model_dump(mode="json", exclude=free)
        del identity["world"]["bases"]
        designs = {name: each.model_dump(mode="json") for name, each in self.config.designs.items()}
        if path.exists():
            there = json.loads(path.read_text())
            stored = there.pop("designs")
            differing = [key for key in identity | there if identity.get(key) != there.get(key)]
            differing += [f"designs.{name}" for name, own in designs.items() if own != stored.get(name, own)]
            if differing:
                raise ValueError(
                    f"{self.folder}: holds a study with other settings ({', '.join(sorted(differing))}). Give this one "
                    "another name, or remove the folder."
                )
            designs = stored | designs
        write_atomically(path, json.dumps(identity | {"designs": designs}, indent=1))


def rounded(rate: float) -> float:
    """A rate as it is read from a table."""
    return float(f"{rate:.{DIGITS}g}")


def _heights(curves: pd.DataFrame, budget: int) -> pd.DataFrame:
    """Mean matched accuracy over the budget, over runs, and its standard error, by learning rate in rising order."""
    grid = np.linspace(0, budget, GRID)
    found = {rate: area(on_grid(own, "matched", grid), grid) for rate, own in curves.groupby("rate", sort=True)}
    rows = {rate: (own.mean(), own.std(ddof=1) / np.sqrt(len(own))) for rate, own in found.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "se"])
