"""Hidden files and folders that replace others atomically, and the removal of those left by killed processes.

A writer holds a lock (``flock``) on what it is making. The system releases it when the process ends, however it ends.
Whoever gets the lock knows that the writer is dead, also in another container or on another machine.
"""

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows: nothing is locked, and nothing that was left is removed
    fcntl = None  # type: ignore[assignment]

_LEFT = re.compile(r"\..+\.[0-9a-f]{16}\.kaestat\.tmp")


@contextmanager
def new_file(path: Path, mode: int) -> Iterator[tuple[Path, BinaryIO]]:
    """An empty file next to ``path``, open and locked; it is removed at the end if it still exists."""
    while True:
        temporary = _beside(path.parent, path.name)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
        file = open(os.open(temporary, flags, mode), "wb")
        try:
            if not _locked(file.fileno(), wait=True) or os.fstat(file.fileno()).st_nlink:
                yield temporary, file
                return
        finally:  # a file without a name was removed by another process before it was locked: once more
            try:
                file.close()  # it writes the rest, for which there may be no space
            finally:
                temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(folder: Path, name: str) -> Iterator[Path]:
    """A new empty hidden folder in ``folder``, which is created if missing; it is removed at the end."""
    while True:
        temporary = _beside(folder, name)
        temporary.mkdir(parents=True)
        handle = None if fcntl is None else os.open(temporary, os.O_RDONLY)
        try:
            if handle is None or not _locked(handle, wait=True) or temporary.is_dir():
                yield temporary
                return
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            if handle is not None:
                os.close(handle)


def remove_left(folder: Path) -> None:
    """Remove what dead writers left in a folder; files in doubt and files that cannot be removed stay."""
    if fcntl is None:
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for name in [entry.name for entry in entries if _LEFT.fullmatch(entry.name)]:
            with suppress(OSError):
                _remove_if_dead(folder / name)


def _remove_if_dead(path: Path) -> None:
    is_folder = path.is_dir()
    # NFS locks only files open for writing; folders cannot be open for writing.
    handle = os.open(path, (os.O_RDONLY if is_folder else os.O_RDWR) | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not _locked(handle, wait=False):
            return
        if is_folder:
            shutil.rmtree(path)
        else:
            path.unlink()
    finally:
        os.close(handle)


def _beside(folder: Path, name: str) -> Path:
    return folder / f".{name}.{secrets.token_hex(8)}.kaestat.tmp"


def _locked(handle: int, *, wait: bool) -> bool:
    """Whether the lock was got; False where another holds it, or the file system has none."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
