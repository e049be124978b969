"""What a study is: a frozen declaration of aims, data and estimands, and of how methods are run and measured."""

import hashlib
import inspect
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kaestat.core.checks import check_whole
from simulations.harness.performance import Estimate, average, proportion
from simulations.harness.randomness import Streams

Factor = int | float | str | bool | None
Samples = Mapping[str, np.ndarray]  # column -> one number per replicate, shape (R,)

PROJECT = Path(__file__).parents[2]
COMPUTING_PACKAGES = ("numpy", "scipy", "pandas")


@dataclass(frozen=True)
class Cell:
    """One point of the design grid.

    factors: The cell's settings, plain values, read as ``cell["bandwidth"]``.
    """

    factors: Mapping[str, Factor]

    def __getitem__(self, name: str) -> Any:
        return self.factors[name]

    @property
    def key(self) -> str:
        """Hash of the content: the same settings are the same cell, whatever else is in the study."""
        return content_hash(dict(self.factors))

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.factors.items())


def averages(cell: Cell, samples: Samples) -> list[Estimate]:
    """The default summary: the mean of every column."""
    return [average(name, column) for name, column in samples.items()]


def proportions(cell: Cell, samples: Samples) -> list[Estimate]:
    """The summary of columns of hits: the share of each."""
    return [proportion(name, column) for name, column in samples.items()]


@dataclass(frozen=True)
class Study:
    """A Monte Carlo study, declared in the words of Morris, White and Crowther (2019); its summary names the methods.

    name: Its name on the command line; the file in ``simulations/studies`` bears it.
    aims, mechanisms, estimands: What it is to find out; how data are generated; which true quantities are estimated.
    cells: The design grid (`grid` makes full factorials).
    replicates: Replicates of each cell at scale 1.
    simulate: ``simulate(cell, streams) -> {column: array of shape (R,)}`` for the R replicates that ``streams`` stand
        for; vectorised over them. A pure function of its arguments, at the top level of its module.
    summarise: ``summarise(cell, samples) -> list of Estimate``, from all replicates of a cell; the default averages
        columns.
    conclude: ``conclude(summaries) -> DataFrame`` across cells (slopes, comparisons with the paper), from the table of
        `summarise`'s rows with a column for each factor.
    shard: Replicates per shard, the unit of work and of loss. No result depends on it but for rounding: NumPy may sum
        over another number of replicates in another order.
    Raises ValueError if the declaration contradicts itself.
    """

    name: str
    aims: str
    mechanisms: str
    estimands: str
    cells: Sequence[Cell]
    replicates: int
    simulate: Callable[[Cell, Streams], Samples]
    summarise: Callable[[Cell, Samples], list[Estimate]] = averages
    conclude: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    shard: int = 50

    def __post_init__(self):
        if not self.cells:
            raise ValueError(f"study {self.name!r} has no cells.")
        if len({cell.key for cell in self.cells}) < len(self.cells):
            raise ValueError(f"study {self.name!r}: two cells are the same; give each once.")
        for name in ("replicates", "shard"):
            object.__setattr__(self, name, check_whole(f"study {self.name!r}: {name}", getattr(self, name)))

    def cell(self, factors: Mapping[str, Factor]) -> Cell:
        """The one cell that has these factors; so many of them suffice as tell it from the others.

        Raises ValueError if no cell has them, or several do.
        """
        matching = [
            cell for cell in self.cells if all(cell.factors.get(name, self) == factors[name] for name in factors)
        ]
        exact = [cell for cell in matching if len(cell.factors) == len(factors)]
        chosen = exact or matching
        if len(chosen) != 1:
            raise ValueError(
                f"study {self.name!r} has {len(chosen)} cells with {json.dumps(dict(factors))}, and one is needed; "
                f"one of its cells is {json.dumps(dict(self.cells[0].factors))}."
            )
        return chosen[0]

    def seed_key(self, cell: Cell) -> str:
        """What the cell's random numbers depend on: the study's name and the factors."""
        return content_hash({"study": self.name, "data": dict(cell.factors)})

    def declaration(self) -> dict[str, Any]:
        """The study as plain data."""
        return {
            "name": self.name,
            "aims": self.aims,
            "mechanisms": self.mechanisms,
            "estimands": self.estimands,
        }

    def run_id(self, seed: int) -> str:
        """Hash of the declaration, the seed and the code that computes it: results of different code never mix.

        Cells, the number of replicates and their split into shards are left out, so a run can be extended.
        """
        own = _source(self.simulate)  # `code_digest` does not see a study from outside this project
        content = {"declaration": self.declaration(), "seed": seed, "code": code_digest(), "own": own}
        return content_hash(content | {"packages": {name: version(name) for name in COMPUTING_PACKAGES}})[:16]


def _source(function: Callable) -> str | None:
    """The source of the file of a function; None of one that was typed in."""
    try:
        return Path(inspect.getsourcefile(function) or "").read_text()
    except (TypeError, OSError):
        return None


def grid(**factors: Sequence[Factor]) -> tuple[Cell, ...]:
    """Full factorial design; the last factor varies fastest."""
    return tuple(Cell(dict(zip(factors, values, strict=True))) for values in itertools.product(*factors.values()))


def content_hash(content: Any) -> str:
    """SHA-256 of plain data, independent of the order of keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@cache  # this process goes on with the code that it began with
def code_digest() -> str:
    """SHA-256 of the Python sources of ``kaestat`` and ``simulations``."""
    import kaestat

    digest = hashlib.sha256()
    for package in (Path(kaestat.__file__).parent, Path(__file__).parents[1]):
        for path in sorted(package.rglob("*.py")):
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
