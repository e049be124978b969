"""The folder of `kaestat analyze --out`: checked before the work, and never left with a mix of old and new files."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from kaestat.core.provenance import checksum
from kaestat.core.storage import write_atomically

_LIST = ".kaestat-manifest.json"


def check_folder(folder: Path) -> None:
    """Raise an error unless files can be written to the folder, or it can be created.

    A ValueError if it is a file, or lies in one; a PermissionError if nothing can be written there.
    """
    there = next(part for part in (folder, *folder.absolute().parents) if part.exists() or part.is_symlink())
    if not there.is_dir():
        where = "is a file" if there == folder else f"cannot be made: {there} is not a folder"
        raise ValueError(f"--out {folder}: {where}; name a folder.")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise PermissionError(
            f"--out {folder}: nothing can be written to {there} ({error.strerror}); name another folder."
        ) from error


def replace_files(folder: Path, write: Callable[[Path], list[Path]]) -> list[Path]:
    """Write files and remove all those of an earlier analysis; other files are left alone.

    All are written to a hidden folder first, so that one that fails, or an interruption, leaves the old ones as they
    were. A hidden list says by name and checksum what was written. ``write`` writes to the folder that it is given, and
    returns what it wrote. An OSError or KeyboardInterrupt if a file cannot be written, or the user interrupts, says
    what was written.
    """
    made = not folder.exists()
    wanted: list[str] = []
    done: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".analysis.", suffix=".tmp") as staging:
            new = {path.name: [checksum(path)] for path in write(Path(staging))}
            wanted, earlier = list(new), _listed(folder)
            _list(folder, earlier | {name: earlier.get(name, []) + digest for name, digest in new.items()})
            for name in wanted:
                os.replace(Path(staging) / name, folder / name)
                done.append(name)
            for name, digests in earlier.items():
                if name not in new and (folder / name).is_file() and checksum(folder / name) in digests:
                    (folder / name).unlink()
            _list(folder, new)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {_told(folder, done, wanted)}.") from None
    except OSError as error:
        raise OSError(f"--out {folder}: {error.strerror or error}; {_told(folder, done, wanted)}.") from error
    finally:
        if made and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    return [folder / name for name in done]


def _listed(folder: Path) -> dict[str, list[str]]:
    """Checksums by name of what an earlier analysis wrote; several where one was killed."""
    try:
        listed = json.loads((folder / _LIST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    known = listed.items() if isinstance(listed, dict) else ()
    return {name: digests for name, digests in known if isinstance(digests, list) and name == Path(name).name}


def _list(folder: Path, names: dict[str, list[str]]) -> None:
    write_atomically(folder / _LIST, json.dumps(names, indent=1) + "\n")


def _told(folder: Path, done: list[str], wanted: list[str]) -> str:
    if not done:
        return f"nothing was written to {folder}"
    left = [name for name in wanted if name not in done]
    return f"written to {folder}: {', '.join(done)}" + (f"; not written: {', '.join(left)}" if left else "")
