"""Commands of this project within the minutes and the memory of a machine that is lent, gone on with at the next loan.

A queue of pieces, each a command that goes on where it stopped. As many run side by side as the memory holds, since
small models leave a large GPU idle between their launches; none is begun with less time left than it would lose, and
at the end all are stopped. What they have finished, and is small, is packed into one archive that the next loan begins
with: a lent machine keeps nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from kaestat.core.storage import write_atomically
from llm_experiments.config import NAME, Section, checked, read_yaml

ARCHIVE = "pieces.tar.gz"
LARGEST = 4 * 2**20  # bytes of a file that is packed
PATIENCE = 10.0  # seconds between a request to stop and an end by force
LOOK = 0.5  # seconds
TOLD = 3  # last lines of a failed piece's output


class Piece(Section):
    """One command.

    Attributes
    ----------
    command : list of str
        A module and its arguments, such as ``[llm_experiments, study, --config, ...]``; ``{runs}`` and ``{results}``
        stand for the folders.
    gib : float
        Memory of the device that it takes at most.
    stretch : float
        Minutes of work that are lost when it is cut off.
    after : list of str
        Pieces that must be finished first.
    """

    command: list[str] = Field(min_length=2)
    gib: PositiveFloat
    stretch: PositiveFloat
    after: list[str] = Field(default_factory=list)


class HalfHour(Section):
    """A queue.

    Attributes
    ----------
    name : str
    gib : float
        Memory of the device.
    at_once : int
        Most pieces side by side.
    pieces : dict of str to Piece
        In the order in which they are begun.
    """

    name: str = Field(pattern=NAME)
    gib: PositiveFloat
    at_once: PositiveInt = 4
    pieces: Mapping[str, Piece]

    @model_validator(mode="after")
    def _can_be_run(self) -> HalfHour:
        known: list[str] = []
        for name, piece in self.pieces.items():
            strange = [each for each in piece.after if each not in known]
            if strange:
                raise ValueError(f"pieces.{name}: after names {strange[0]!r}, which is none of the pieces before it.")
            if piece.gib > self.gib:
                raise ValueError(f"pieces.{name}: takes {piece.gib:g} GiB, and the device has {self.gib:g}.")
            known.append(name)
        return self


def load_half_hour(path: str | Path) -> HalfHour:
    """A queue from a YAML file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If a setting is unknown or wrong; the message names it.
    """
    return checked(HalfHour, str(path), read_yaml(path))


@dataclass
class Queue:
    """The pieces of a queue, in one folder.

    Attributes
    ----------
    config : HalfHour
    folder : Path
        Of runs, of results, of each piece's output and of marks for those that are finished.
    say : callable
        Takes a line for the user.
    """

    config: HalfHour
    folder: Path
    say: Callable[[str], None] = print
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _failed: set[str] = field(default_factory=set)

    def unpack(self, archive: Path) -> None:
        """Begin with what an earlier loan has finished."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as packed:
            for member in packed:
                place, content = self.folder / member.name, packed.extractfile(member)
                if content is None or not place.resolve().is_relative_to(self.folder.resolve()):
                    raise ValueError(f"{archive}: holds {member.name!r}, which pack() did not put there.")
                place.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(place, content.read())

    def pack(self, out: Path) -> Path:
        """All that is finished and small, in one archive; models and norms of single prompts are left out."""
        out.mkdir(parents=True, exist_ok=True)
        place = out / ARCHIVE
        temporary = place.with_suffix(".tmp")
        with tarfile.open(temporary, "w:gz") as packed:
            for path in sorted(self.folder.rglob("*")):
                inside = path.relative_to(self.folder)
                if not path.is_file() or _stays(inside.parts):
                    continue
                if path.stat().st_size > LARGEST:
                    self.say(f"left out, larger than {LARGEST >> 20} MiB: {inside}")
                else:
                    packed.add(path, inside)
        os.replace(temporary, place)
        return place

    def run(self, minutes: float) -> bool:
        """Work on the pieces for some minutes; returns whether all are finished.

        A piece that fails is not begun again in this call, nor are those that come after it.
        """
        end = time.monotonic() + 60 * minutes
        try:
            while time.monotonic() < end:
                self._collect()
                self._begin(end - time.monotonic())
                if not self._running:
                    break
                time.sleep(LOOK)
        finally:
            self._stop()
        left = [name for name in self.config.pieces if not self._is_done(name)]
        self.say(f"finished {len(self.config.pieces) - len(left)} of {len(self.config.pieces)} pieces")
        return not left

    def _begin(self, seconds: float) -> None:
        """Begin what fits."""
        pieces = self.config.pieces
        for name, piece in pieces.items():
            taken = sum(pieces[other].gib for other in self._running)
            ready = all(self._is_done(other) for other in piece.after)
            fits = taken + piece.gib <= self.config.gib and len(self._running) < self.config.at_once
            waiting = not self._is_done(name) and name not in self._running and name not in self._failed
            if waiting and ready and fits and seconds >= 60 * piece.stretch:
                self._running[name] = self._started(name, piece)
                self.say(f"begun: {name}")

    def _started(self, name: str, piece: Piece) -> subprocess.Popen[bytes]:
        module, *arguments = (
            each.replace("{runs}", str(self.folder / "runs")).replace("{results}", str(self.folder / "results"))
            for each in piece.command
        )
        log = self._log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | {"HF_HUB_OFFLINE": "1"},
            )

    def _collect(self) -> None:
        """Take note of pieces that have ended."""
        for name, process in list(self._running.items()):
            if process.poll() is None:
                continue
            del self._running[name]
            if process.returncode == 0:
                mark = self._mark(name)
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.touch()
                self.say(f"finished: {name}")
            else:
                self._failed.add(name)
                lines = self._log(name).read_text(errors="replace").splitlines()[-TOLD:]
                self.say("\n    ".join([f"failed with {process.returncode}: {name}", *lines]))

    def _stop(self) -> None:
        """Ask what still runs to end, with all its children, and then make it."""
        self._collect()
        for process in self._running.values():
            _signal(process, signal.SIGTERM)
        patience = time.monotonic() + PATIENCE
        for name, process in self._running.items():
            try:
                process.wait(max(0.0, patience - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                process.wait()
            self.say(f"cut off: {name}")
        self._running.clear()

    def _is_done(self, name: str) -> bool:
        return self._mark(name).exists()

    def _mark(self, name: str) -> Path:
        return self.folder / "done" / name

    def _log(self, name: str) -> Path:
        return self.folder / "output" / f"{name}.txt"


def _stays(parts: tuple[str, ...]) -> bool:
    """Whether a file is made again sooner than it travels: models, and what `law` keeps of single prompts."""
    return parts[:2] == ("runs", "models") or (parts[:2] == ("runs", "law") and "scores" in parts)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """To a piece and all its children, unless they have just ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
