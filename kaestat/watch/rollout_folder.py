"""A folder with a file for each step: verl's rollout dumps, TRL's logged completions. Each look reads the new files."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from kaestat.logs.readers import read_log
from kaestat.logs.readers.trl import completion_files
from kaestat.logs.readers.verl import numbered
from kaestat.logs.reward_log import RewardLog
from kaestat.watch.reading import Reading

Signature = tuple[int, int]


class RolloutFolder:
    """A folder of files that are written one after the other.

    A file is taken once a newer one is there, so that it is complete. One that has been read and changes, or an older
    one that appears, means that the run has begun anew.

    Parameters
    ----------
    path : Path
    format : str
        ``"verl"`` or ``"trl"``.
    hints : dict
        As `kaestat.read_log` takes them.
    """

    def __init__(self, path: Path, format: str, hints: dict[str, Any]):
        self._path, self._format, self._hints = path, format, hints
        self._forget()

    def _forget(self) -> None:
        self._taken: dict[str, Signature] = {}
        self._before: Path | None = None
        self._torn: tuple[str, Signature] | None = None
        self._any_read = False

    def read(self, *, last: bool = False) -> Reading:
        """The next new file.

        Parameters
        ----------
        last : bool
            Whether there will be no other look: the newest file is taken too, if it can be read.

        Raises
        ------
        ValueError
            If the first file cannot be read although it changes no more. A later one is left out, and told of.
        """
        files = self._files()
        signatures = {file.name: _signature(file) for file in files}
        at = 1 + max((k for k, file in enumerate(files) if file.name in self._taken), default=-1)
        anew = any(self._taken.get(file.name) != signatures[file.name] for file in files[:at])
        if anew or (self._taken and not at and files):
            self._forget()
            anew, at = True, 0
        waiting = files[at:] if last else files[at:-1]
        if not waiting:
            told = f"{self._path}: waits for a second file." if files and not self._taken else ""
            return Reading(anew=anew, waiting=told)
        file = waiting[0]
        try:
            log = self._parse(file)
        except ValueError as error:
            return self._unread(file, signatures[file.name], error, anew=anew, last=last, more=len(waiting) > 1)
        self._taken[file.name] = signatures[file.name]
        self._before, self._any_read = file, True
        return Reading(log, anew=anew, whole_steps=True, more=len(waiting) > 1)

    def _unread(
        self, file: Path, signature: Signature, error: ValueError, *, anew: bool, last: bool, more: bool
    ) -> Reading:
        """What to do about a file that cannot be read: wait while it changes, then do without it."""
        if not last and self._torn != (file.name, signature):
            self._torn = (file.name, signature)
            return Reading(anew=anew, waiting=str(error))
        if not self._any_read and not more:
            raise error
        self._taken[file.name] = signature
        return Reading(anew=anew, more=more, waiting=f"{error} The file was left out.")

    def _files(self) -> list[Path]:
        return numbered(self._path) if self._format == "verl" else completion_files(self._path)

    def _parse(self, file: Path) -> RewardLog | None:
        if self._format == "verl" or self._before is None or not self._before.exists():
            return read_log(file, format=self._format, **self._hints)
        # TRL logs a batch again at each step that it is used for: with the file before it, the reader knows it again.
        before = read_log(self._before, format=self._format, **self._hints)
        with tempfile.TemporaryDirectory() as folder:
            for each in (self._before, file):
                shutil.copyfile(each, Path(folder) / each.name)
            both = read_log(folder, format=self._format, **self._hints)
        return _after(both, int(before.frame["step"].max()))


def _signature(file: Path) -> Signature:
    stat = file.stat()
    return stat.st_size, stat.st_mtime_ns


def _after(log: RewardLog, step: int) -> RewardLog | None:
    """The completions of later steps; None if there are none."""
    frame = log.frame[log.frame["step"] > step]
    if frame.empty:
        return None
    columns: dict[str, Any] = {
        part: frame[part].to_numpy() for part in ("weight", "length", "importance") if part in frame
    }
    prompts = [log.prompts[code] for code in frame["prompt"].tolist()]
    return RewardLog(prompts, frame["step"], frame["reward"], **columns)
