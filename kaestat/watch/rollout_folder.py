"""A folder with a file for each step: verl's rollout dumps, TRL's logged completions. Each look reads the new files."""

import shutil
import stat
import tempfile
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kaestat.logs.readers import read_log
from kaestat.logs.readers.trl import completion_files
from kaestat.logs.readers.verl import numbered, read_together
from kaestat.logs.reward_log import RewardLog
from kaestat.watch.reading import Reading
from kaestat.watch.valid_rows import TextRows

Signature = tuple[int, int]
_AT_ONCE = 64  # files of verl's that are read together: a table for each would take longer than its rows
_PATIENCE = 3  # looks for which a link to nothing is waited for


class RolloutFolder:
    """A folder whose files are written one after the other.

    A file is read once a newer one exists, so that it is complete. If a file changes after it was read, or an older
    one appears, the run has started again. The folder is listed once per look, and all new files are
    read. From a file that stays incomplete, the readable rows are used.
    """

    def __init__(self, path: Path, format: str, hints: dict[str, Any]):
        self._path, self._format, self._hints = path, format, hints
        self._anew = False
        self._forget()

    def _forget(self) -> None:
        self._taken: dict[str, Signature] = {}
        self._before: Path | None = None
        self._torn: tuple[str, Signature] | None = None
        self._missing: dict[str, int] = {}  # looks at which a link led to nothing
        self._any_read = False
        self._queue: deque[tuple[Path, Signature]] = deque()
        self._singly = 0  # files at the head of the queue that are read one by one, since one of them is torn

    def state(self) -> dict[str, Any]:
        """The reading position as plain data."""
        before = None if self._before is None else str(self._before.relative_to(self._path))
        return {"taken": {name: list(of) for name, of in self._taken.items()}, "before": before}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a position in `state`."""
        self._forget()
        self._taken = {str(name): (int(size), int(time)) for name, (size, time) in state["taken"].items()}
        self._before = None if state["before"] is None else self._path / str(state["before"])
        self._any_read = bool(self._taken)

    def read(self, *, last: bool = False) -> Reading:
        """The next new files; at the ``last`` look the newest file, too, if possible.

        With ``last`` a ValueError if the only file cannot be read. Other unreadable files are left out, and the reading
        says so. An OSError if the folder cannot be listed, or there is no space for a temporary file.
        """
        reading = self._read(last=last)  # if this fails, the next look still reports the restart
        anew, self._anew = self._anew, False
        return replace(reading, anew=anew)

    def _read(self, *, last: bool) -> Reading:
        told = "" if self._queue else self._look(last=last)
        if not self._queue:
            return Reading(waiting=told)
        together = self._together(told=told)
        if together is not None:
            return together
        file, signature = self._queue.popleft()
        try:
            log = self._parse(file)
        except FileNotFoundError:
            return Reading(more=bool(self._queue), waiting=f"{file}: vanished before it could be read.")
        except ValueError as error:
            return self._unread(file, signature, error, last=last)
        self._done(file, signature)
        return Reading(log, whole_steps=True, more=bool(self._queue), waiting=told)

    def _look(self, *, last: bool) -> str:
        """List the folder, once, and line up what is new; what is waited for."""
        files, told = [], ""
        for file in self._files():
            try:
                found = file.stat()
            except OSError as error:  # vanished since it was listed, or a link to nothing
                looks = self._missing[file.name] = self._missing.get(file.name, 0) + 1
                told = f"{file}: is a link that leads nowhere ({error.strerror})." if file.is_symlink() else told
                if file.is_symlink() and looks < _PATIENCE:
                    break  # those after it wait
                continue
            if stat.S_ISREG(found.st_mode):
                files.append((file, (found.st_size, found.st_mtime_ns)))
            else:
                told = f"{file}: is not a file, and is skipped."
        at = 1 + max((k for k, (file, _) in enumerate(files) if file.name in self._taken), default=-1)
        anew = any(self._taken.get(file.name) != signature for file, signature in files[:at])
        if anew or (self._taken and not at and files):
            self._forget()
            self._anew, at = True, 0
        self._queue, self._singly = deque(files[at:] if last else files[at:-1]), 0
        if not self._queue and files and not self._taken:
            told = told or f"{self._path}: waits for a second file."
        return told

    def _together(self, *, told: str) -> Reading | None:
        """Several files of verl's at once; None where they must be read one by one."""
        some = list(self._queue)[:_AT_ONCE]
        if self._format != "verl" or len(some) == 1 or self._singly:
            self._singly = max(0, self._singly - 1)
            return None
        try:
            log = read_together([file for file, _ in some], **self._hints)
        except (ValueError, FileNotFoundError):
            self._singly = len(some) - 1
            return None
        for file, signature in some:
            self._queue.popleft()
            self._done(file, signature)
        return Reading(log, whole_steps=True, more=bool(self._queue), waiting=told)

    def _done(self, file: Path, signature: Signature) -> None:
        self._taken[file.name] = signature
        self._before, self._any_read, self._torn = file, True, None

    def _unread(self, file: Path, signature: Signature, error: ValueError, *, last: bool) -> Reading:
        """What to do about a file that cannot be read: wait while it changes, then take what rows of it can be."""
        if not last and self._torn != (file.name, signature):
            self._torn = (file.name, signature)
            self._queue.clear()  # the next look sees whether it has changed
            return Reading(waiting=str(error))
        more = bool(self._queue)
        if last and not self._any_read and not more:
            raise error
        log, left_out, first = None, 0, f"{file.name}: {error}"
        if self._format == "verl":
            with suppress(ValueError):
                found = TextRows(file.name, self._format, self._hints).read(file.read_bytes(), 1)
                log, left_out, first = found.log, found.left_out, f"{file.name}, {found.first}"
        self._done(file, signature)
        said = f"{error} The file was left out." if log is None else ""
        return Reading(log, whole_steps=log is not None, more=more, waiting=said, left_out=left_out, first=first)

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
        found = _after(both, int(before.frame["step"].max()))
        if found is not None:
            found.ungraded = both.ungraded - before.ungraded
        return found


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
