"""Where a run's shards lie: append-only files that appear whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kaestat.storage import load_state, save_state, write_atomically
from simulations.harness.study import Cell, Samples

PROBE = bytes(1 << 20)  # large enough that a full disk or a quota refuses it


@dataclass(frozen=True)
class Shard:
    """Replicates ``first`` to ``last - 1`` of a cell, the unit of work and of loss."""

    cell: Cell
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def name(self) -> str:
        """File name without its ending."""
        return f"{self.first:08d}-{self.last:08d}"


class Store:
    """The folder of one run.

    ``shards/CELL/FIRST-LAST.shard`` hold the columns of replicates FIRST..LAST-1, with a checksum; ``failures/`` tells
    what went wrong. A shard is written once and never changed. One that is found torn or altered is set aside as
    ``*.damaged``, and its replicates count as missing. Shards that were read stay in memory.

    Parameters
    ----------
    folder : path

    Attributes
    ----------
    damaged : list of path
        Files that were set aside.
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self.damaged: list[Path] = []
        self._loaded: dict[str, dict[tuple[int, int], Samples]] = {}

    def check_writable(self) -> None:
        """Write, sync and remove a file of 1 MiB.

        Raises
        ------
        OSError
            If the folder cannot be made or written to, or the disk is full.
        """
        probe = self.folder / f".probe-{secrets.token_hex(8)}"
        self._write(probe, PROBE)
        probe.unlink()

    def missing(self, cell: Cell, replicates: int, shard: int) -> list[Shard]:
        """What of the first ``replicates`` replicates is not there, cut at the multiples of ``shard``."""
        absent = np.ones(replicates, dtype=bool)
        for first, last in self._shards(cell):
            absent[first:last] = False
        pieces = []
        for start in range(0, replicates, shard):
            there = np.concatenate([[False], absent[start : start + shard], [False]])
            edges = start + np.flatnonzero(there[1:] != there[:-1])
            pieces += [Shard(cell, int(first), int(last)) for first, last in edges.reshape(-1, 2)]
        return pieces

    def write(self, shard: Shard, samples: Samples) -> None:
        """Store a shard.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        content = {"factors": dict(shard.cell.factors), "first": shard.first, "last": shard.last, "columns": samples}
        self._write(self._shard_path(shard), content)

    def remember(self, shard: Shard, samples: Samples) -> None:
        """Count a shard, stored since its cell was read, among those that are there."""
        self._shards(shard.cell)[shard.first, shard.last] = samples

    def read(self, cell: Cell, replicates: int) -> Samples:
        """Columns of the first ``replicates`` replicates of a cell, in order.

        Raises
        ------
        ValueError
            If replicates are missing, or shards have different columns.
        """
        shards, columns = self._shards(cell), None
        absent = np.ones(replicates, dtype=bool)
        for (first, last), samples in sorted(shards.items()):
            if columns is None:
                columns = {name: np.empty(replicates) for name in samples}
            if columns.keys() != samples.keys():
                raise ValueError(
                    f"cell ({cell}): replicates from {first} on have columns {', '.join(samples)}, those before "
                    f"{', '.join(columns)}; simulate must return the same columns for all replicates of a cell."
                )
            for name, column in samples.items():
                columns[name][first:last] = column[: max(replicates - first, 0)]
            absent[first:last] = False
        if absent.any():
            raise ValueError(f"cell ({cell}): replicate {int(np.argmax(absent))} is missing; run the study.")
        return columns

    def write_failure(self, shard: Shard, record: dict[str, Any]) -> None:
        """Record a shard that failed, with what is needed to replay it."""
        self._write(self._failure_path(shard), json.dumps(record, indent=1))

    def clear_failure(self, shard: Shard) -> None:
        """Forget the failures of these replicates, now that an attempt succeeded."""
        for path in (self.folder / "failures").glob(f"{shard.cell.key[:16]}-*.json"):
            first, last = map(int, path.stem.split("-")[1:])
            if first < shard.last and shard.first < last:
                path.unlink(missing_ok=True)

    def write_text(self, name: str, text: str) -> None:
        """Write a table or a record of the run."""
        self._write(self.folder / name, text)

    def _shards(self, cell: Cell) -> dict[tuple[int, int], Samples]:
        """Complete shards of a cell by first replicate and last + 1."""
        if cell.key not in self._loaded:
            loaded = self._loaded[cell.key] = {}
            for path in sorted(self._cell_folder(cell).glob("*.shard")):
                try:
                    shard, samples = _read_shard(path, cell)
                    loaded[shard.first, shard.last] = samples
                except (ValueError, KeyError):
                    self.damaged.append(path)
                    _set_aside(path)
                except FileNotFoundError:  # another run has just set it aside
                    continue
        return self._loaded[cell.key]

    def _cell_folder(self, cell: Cell) -> Path:
        return self.folder / "shards" / cell.key[:16]

    def _shard_path(self, shard: Shard) -> Path:
        return self._cell_folder(shard.cell) / f"{shard.name}.shard"

    def _failure_path(self, shard: Shard) -> Path:
        return self.folder / "failures" / f"{shard.cell.key[:16]}-{shard.name}.json"

    def _write(self, path: Path, content: bytes | str | dict) -> None:
        try:
            (save_state if isinstance(content, dict) else write_atomically)(path, content)
        except OSError as error:
            raise OSError(f"cannot write results to {self.folder}: {error.strerror or error}.") from error


def _read_shard(path: Path, cell: Cell) -> tuple[Shard, Samples]:
    """A shard file; ValueError or KeyError if it is torn, altered or not what its place says."""
    state = load_state(path)
    shard = Shard(cell, state["first"], state["last"])
    if Cell(state["factors"]).key != cell.key or shard.name != path.stem:
        raise ValueError(f"{path}: a shard of another cell or of other replicates.")
    return shard, state["columns"]


def _set_aside(path: Path) -> None:
    try:
        path.rename(path.with_suffix(".damaged"))
    except FileNotFoundError:  # another run was first
        pass
