"""Where a run's shards lie: append-only files that appear whole or not at all."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from kaestat.storage import write_atomically
from simulations.harness.study import Cell, Samples


class Store:
    """The folder of one run.

    ``shards/CELL/FIRST-LAST.npz`` hold the columns of replicates FIRST..LAST-1; ``failures/`` what went wrong.
    A shard is written once and never changed.

    Parameters
    ----------
    folder : path
        Made if missing.

    Raises
    ------
    OSError
        If the folder cannot be written to; asked before any work starts.
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        try:
            write_atomically(self.folder / ".writable", b"")
            (self.folder / ".writable").unlink(missing_ok=True)
        except OSError as error:
            raise OSError(f"cannot write results to {self.folder}: {error.strerror or error}.") from error

    def shard_path(self, cell: Cell, first: int, last: int) -> Path:
        """File of one shard."""
        return self.folder / "shards" / cell.key[:16] / f"{first:08d}-{last:08d}.npz"

    def has(self, cell: Cell, first: int, last: int) -> bool:
        """Whether a complete shard is there."""
        return self.shard_path(cell, first, last).exists()

    def write(self, cell: Cell, first: int, last: int, samples: Samples) -> None:
        """Store a shard.

        Raises
        ------
        ValueError
            If a column does not hold one finite number per replicate.
        """
        for name, column in samples.items():
            if np.shape(column) != (last - first,):
                raise ValueError(f"column {name!r} has shape {np.shape(column)}, expected ({last - first},).")
            if not np.isfinite(column).all():
                raise ValueError(
                    f"column {name!r} is not finite in replicate {first + int(np.argmin(np.isfinite(column)))}."
                )
        buffer = io.BytesIO()
        columns = np.stack([np.asarray(column, dtype=float) for column in samples.values()])
        header = json.dumps({"columns": list(samples), "factors": dict(cell.factors)}, sort_keys=True)
        np.savez(buffer, header=np.frombuffer(header.encode(), dtype=np.uint8), columns=columns)
        write_atomically(self.shard_path(cell, first, last), buffer.getvalue())

    def read(self, cell: Cell, n_replicates: int, shard: int) -> Samples:
        """Columns of the first ``n_replicates`` replicates of a cell, in order.

        Raises
        ------
        ValueError
            If a shard is torn.
        FileNotFoundError
            If one is missing.
        """
        parts, names = [], None
        for first in range(0, n_replicates, shard):
            path = self.shard_path(cell, first, min(first + shard, n_replicates))
            try:
                with np.load(path, allow_pickle=False) as archive:
                    header = json.loads(bytes(archive["header"]).decode())
                    parts.append(archive["columns"])
            except (zipfile.BadZipFile, KeyError, EOFError, ValueError) as error:
                raise ValueError(f"{path}: torn shard ({error}); delete it and run again.") from error
            names = header["columns"] if names is None else names
        return dict(zip(names, np.concatenate(parts, axis=1), strict=True))

    def write_failure(self, cell: Cell, first: int, last: int, record: dict[str, Any]) -> Path:
        """Record a shard that failed, with what is needed to replay it."""
        path = self.folder / "failures" / f"{cell.key[:16]}-{first:08d}-{last:08d}.json"
        write_atomically(
            path, json.dumps({"factors": dict(cell.factors), "first": first, "last": last} | record, indent=1)
        )
        return path

    def clear_failure(self, cell: Cell, first: int, last: int) -> None:
        """Forget a failure that a later attempt mended."""
        (self.folder / "failures" / f"{cell.key[:16]}-{first:08d}-{last:08d}.json").unlink(missing_ok=True)

    def failures(self) -> list[dict[str, Any]]:
        """All recorded failures."""
        return [json.loads(path.read_text()) for path in sorted((self.folder / "failures").glob("*.json"))]
