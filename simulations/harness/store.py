"""Where a run's shards lie: append-only files that appear whole or not at all."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kaestat.core.storage import load_state, save_state, write_atomically
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
    def range(self) -> tuple[int, int]:
        """First replicate, and the one after the last."""
        return self.first, self.last

    @property
    def name(self) -> str:
        """File name without its ending."""
        return f"{self.first:08d}-{self.last:08d}"


class Store:
    """The folder of one run.

    ``shards/CELL/FIRST-LAST.shard`` hold the columns of replicates FIRST..LAST-1, with a checksum; ``failures/`` tells
    what went wrong. A shard is written once and never changed. One that is found torn or altered is set aside as
    ``*.damaged``, and its replicates count as missing. Shards that were read stay in memory.

    damaged: Files that were set aside.
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self.damaged: list[Path] = []
        self._loaded: dict[str, dict[tuple[int, int], Samples]] = {}

    def check_writable(self) -> None:
        """Write, sync and remove a file of 1 MiB.

        Raises OSError if the folder cannot be made or written to, or the disk is full.
        """
        probe = self.folder / ".probe"  # one name: what a killed run leaves of it, the next removes
        self._write(probe, PROBE)
        probe.unlink(missing_ok=True)

    def missing(self, cell: Cell, replicates: int, shard: int) -> list[Shard]:
        """What of the first ``replicates`` replicates is not there, of the shards that they are cut into.

        A shard of another cut is not used in its stead: NumPy may round a sum over fewer replicates differently in the
        last bit, and results must not depend on what was computed before.
        """
        return [piece for piece in _cut(cell, replicates, shard) if piece.range not in self._shards(cell)]

    def write(self, shard: Shard, samples: Samples) -> None:
        """Store a shard.

        Raises OSError if it cannot be written.
        """
        content = {"factors": dict(shard.cell.factors), "first": shard.first, "last": shard.last, "columns": samples}
        self._write(self._cell_folder(shard.cell) / f"{shard.name}.shard", content)

    def remember(self, shard: Shard, samples: Samples) -> None:
        """Count a shard, stored since its cell was read, among those that are there."""
        self._shards(shard.cell)[shard.range] = samples

    def read(self, cell: Cell, replicates: int, shard: int) -> Samples:
        """Columns of the first ``replicates`` replicates of a cell, in order, cut as in `missing`.

        Raises ValueError if replicates are missing, or shards have different columns.
        """
        parts: list[Samples] = []
        for piece in _cut(cell, replicates, shard):
            samples = self._shards(cell).get(piece.range)
            if samples is None:
                raise ValueError(f"cell ({cell}): replicates {piece.name} are missing; run the study.")
            parts.append(samples)
            if samples.keys() != parts[0].keys():
                raise ValueError(
                    f"cell ({cell}): replicates {piece.name} have columns {', '.join(samples)}, those before "
                    f"{', '.join(parts[0])}; simulate must return the same columns for all replicates of a cell."
                )
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def write_failure(self, shard: Shard, record: dict[str, Any]) -> None:
        """Record a shard that failed, with what is needed to replay it."""
        path = self.folder / "failures" / f"{shard.cell.key[:16]}-{shard.name}.json"
        self._write(path, json.dumps(record, indent=1))

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
        """Complete shards of a cell by their ranges."""
        if cell.key not in self._loaded:
            loaded = self._loaded[cell.key] = {}
            for path in sorted(self._cell_folder(cell).glob("*.shard")):
                try:
                    shard, samples = _read_shard(path, cell)
                    loaded[shard.range] = samples
                except (ValueError, KeyError):
                    self.damaged.append(path)
                    with suppress(FileNotFoundError):  # another run was first
                        path.rename(path.with_suffix(".damaged"))
                except FileNotFoundError:  # another run has just set it aside
                    continue
        return self._loaded[cell.key]

    def _cell_folder(self, cell: Cell) -> Path:
        return self.folder / "shards" / cell.key[:16]

    def _write(self, path: Path, content: bytes | str | dict) -> None:
        try:
            (save_state if isinstance(content, dict) else write_atomically)(path, content)
        except OSError as error:
            raise OSError(f"cannot write results to {self.folder}: {error.strerror or error}.") from error


def _cut(cell: Cell, replicates: int, shard: int) -> list[Shard]:
    return [Shard(cell, first, min(first + shard, replicates)) for first in range(0, replicates, shard)]


def _read_shard(path: Path, cell: Cell) -> tuple[Shard, Samples]:
    """A shard file; ValueError or KeyError if it is torn, altered or not what its place says."""
    state = load_state(path)
    shard = Shard(cell, state["first"], state["last"])
    if Cell(state["factors"]).key != cell.key or shard.name != path.stem:
        raise ValueError(f"{path}: a shard of another cell or of other replicates.")
    return shard, state["columns"]
