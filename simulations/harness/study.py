"""What a study is: a frozen declaration of aims, data, estimands, methods and performance measures (ADEMP)."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from simulations.harness.performance import Estimate, average
from simulations.harness.randomness import Streams

Factor = int | float | str | bool | None
Samples = Mapping[str, np.ndarray]  # column -> one number per replicate, shape (R,)


@dataclass(frozen=True)
class Cell:
    """One point of the design grid.

    Attributes
    ----------
    factors : mapping of str to plain values
        The cell's settings, read as ``cell["bandwidth"]``.
    """

    factors: Mapping[str, Factor]

    def __post_init__(self):
        for name, value in self.factors.items():
            if not isinstance(value, int | float | str | bool | None):
                raise TypeError(f"factor {name!r} must be a plain value, got {type(value).__name__}.")
        object.__setattr__(self, "factors", MappingProxyType(dict(self.factors)))

    def __getitem__(self, name: str) -> Any:
        return self.factors[name]

    def __reduce__(self):
        return Cell, (dict(self.factors),)

    @property
    def key(self) -> str:
        """Hash of the content: the same settings are the same cell, whatever else is in the study."""
        return content_hash(dict(self.factors))

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.factors.items())


def averages(cell: Cell, samples: Samples) -> list[Estimate]:
    """The default summary: the mean of every column."""
    return [average(name, column) for name, column in samples.items()]


@dataclass(frozen=True)
class Study:
    """A Monte Carlo study, declared in the words of Morris, White and Crowther (2019).

    Parameters
    ----------
    name : str
        Its name on the command line; the file in ``simulations/studies`` bears it.
    aims, mechanisms, estimands : str
        What it is to find out; how data are generated; which true quantities are estimated.
    methods : sequence of str
        What is compared.
    measures : sequence of str
        Performance measures that `summarise` and `conclude` report.
    cells : sequence of Cell
        The design grid (`grid` makes full factorials).
    replicates : int
        Replicates of each cell at scale 1.
    simulate : callable
        ``simulate(cell, streams) -> {column: array of shape (R,)}`` for the R replicates that ``streams`` stand for;
        vectorised over them. A pure function of its arguments, at the top level of its module.
    summarise : callable, optional
        ``summarise(cell, samples) -> list of Estimate``, from all replicates of a cell; the default averages columns.
    conclude : callable, optional
        ``conclude(summaries) -> DataFrame`` across cells (slopes, comparisons with the paper), from the table of
        `summarise`'s rows with a column for each factor.
    common : sequence of str
        Factors that change what is done with the data, not the data: cells that differ in these alone share random
        numbers.
    shard : int
        Replicates per shard, the unit of work and of loss.
    precision : float, optional
        Add replicates until every summary's Monte Carlo standard error is below this fraction of its estimate, or
        `max_replicates` are reached.
    max_replicates : int, optional
        Bound for `precision`; default four times ``replicates``.
    """

    name: str
    aims: str
    mechanisms: str
    estimands: str
    methods: Sequence[str]
    measures: Sequence[str]
    cells: Sequence[Cell]
    replicates: int
    simulate: Callable[[Cell, Streams], Samples]
    summarise: Callable[[Cell, Samples], list[Estimate]] = averages
    conclude: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    common: Sequence[str] = ()
    shard: int = 50
    precision: float | None = None
    max_replicates: int | None = None
    title: str = field(default="")

    def __post_init__(self):
        if not self.cells:
            raise ValueError(f"study {self.name!r} has no cells.")
        for name in ("replicates", "shard"):
            size = getattr(self, name)
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"study {self.name!r}: {name} must be a positive integer, got {size!r}.")
        keys = [cell.key for cell in self.cells]
        if len(set(keys)) < len(keys):
            raise ValueError(f"study {self.name!r}: two cells are the same.")

    def seed_key(self, cell: Cell) -> str:
        """What the cell's random numbers depend on: the study's name and the factors not in `common`."""
        data = {name: value for name, value in cell.factors.items() if name not in self.common}
        return content_hash({"study": self.name, "data": data})

    def declaration(self) -> dict[str, Any]:
        """The study as plain data."""
        return {
            "name": self.name,
            "aims": self.aims,
            "mechanisms": self.mechanisms,
            "estimands": self.estimands,
            "methods": list(self.methods),
            "measures": list(self.measures),
            "common": list(self.common),
            "shard": self.shard,
        }

    def run_id(self, seed: int) -> str:
        """Hash of the declaration, the seed and the code that computes it: results of different code never mix.

        Cells and the number of replicates are left out, so a run can be extended.
        """
        return content_hash({"declaration": self.declaration(), "seed": seed, "code": code_digest()})[:16]


def grid(**factors: Sequence[Factor]) -> tuple[Cell, ...]:
    """Full factorial design; the last factor varies fastest."""
    return tuple(Cell(dict(zip(factors, values, strict=True))) for values in itertools.product(*factors.values()))


def content_hash(content: Any) -> str:
    """SHA-256 of plain data, independent of the order of keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def code_digest() -> str:
    """SHA-256 of the Python sources of ``kaestat`` and ``simulations``."""
    import kaestat

    digest = hashlib.sha256()
    for package in (Path(kaestat.__file__).parent, Path(__file__).parents[1]):
        for path in sorted(package.rglob("*.py")):
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
