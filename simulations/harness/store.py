"""Where a run's shards lie: append-only files that appear whole or not at all."""

import os
from dataclasses import dataclass
from pathlib import Path

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
    def name(self) -> str:
        """File name without its ending."""
        return f"{self.first:08d}-{self.last:08d}"


@dataclass(frozen=True)
class Store:
    """The folder of one run.

    ``shards/CELL/FIRST-LAST.shard`` hold the columns of replicates FIRST..LAST-1, with a checksum. Of one that is torn
    or changed the replicates count as missing.
    """

    folder: Path

    def check_writable(self) -> None:
        """Write, sync and remove a file of 1 MiB.

        Raises OSError if the folder cannot be made or written to, or the disk is full.
        """
        probe = self.folder / ".probe"  # one name: what a killed run leaves of it, the next removes
        self.write_file(probe.name, PROBE)
        probe.unlink(missing_ok=True)

    def missing(self, cell: Cell, replicates: int, size: int) -> list[Shard]:
        """What of the first ``replicates`` replicates is not there, of the shards that they are cut into.

        A shard of another cut is not used in its stead: NumPy may round a sum over fewer replicates differently in the
        last bit, and results must not depend on what was computed before.
        """
        return [shard for shard in _cut(cell, replicates, size) if self._load(shard) is None]

    def write(self, shard: Shard, samples: Samples) -> None:
        """Store a shard.

        Raises OSError if it cannot be written.
        """
        content = {"factors": dict(shard.cell.factors), "first": shard.first, "last": shard.last, "columns": samples}
        self.write_file(self._path(shard), content)

    def read(self, cell: Cell, replicates: int, size: int) -> Samples:
        """Columns of the first ``replicates`` replicates of a cell, in order, cut as in `missing`.

        Raises ValueError if replicates are missing, or shards have different columns.
        """
        parts: list[Samples] = []
        for shard in _cut(cell, replicates, size):
            samples = self._load(shard)
            if samples is None:
                raise ValueError(f"cell ({cell}): replicates {shard.name} are missing; run the study.")
            parts.append(samples)
            if samples.keys() != parts[0].keys():
                raise ValueError(
                    f"cell ({cell}): replicates {shard.name} have columns {', '.join(samples)}, those before "
                    f"{', '.join(parts[0])}; simulate must return the same columns for all replicates of a cell."
                )
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def write_file(self, name: str | os.PathLike, content: bytes | str | dict) -> None:
        """Write a shard, a table or a record of the run; its name is relative to the folder.

        Raises OSError if it cannot be written.
        """
        try:
            (save_state if isinstance(content, dict) else write_atomically)(self.folder / name, content)
        except OSError as error:
            raise OSError(f"cannot write results to {self.folder}: {error.strerror or error}.") from error

    def _path(self, shard: Shard) -> Path:
        return Path("shards") / shard.cell.key[:16] / f"{shard.name}.shard"

    def _load(self, shard: Shard) -> Samples | None:
        """The columns of a shard; None if its file is not there, is torn, or is not what its place says."""
        try:
            state = load_state(self.folder / self._path(shard))
            stored = Shard(Cell(state["factors"]), state["first"], state["last"])
        except (ValueError, KeyError, OSError):
            return None
        return state["columns"] if (stored.cell.key, stored.name) == (shard.cell.key, shard.name) else None


def _cut(cell: Cell, replicates: int, size: int) -> list[Shard]:
    return [Shard(cell, first, min(first + size, replicates)) for first in range(0, replicates, size)]
