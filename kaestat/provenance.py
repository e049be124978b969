"""Where a result comes from: the input, its checksum, the settings and the versions."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import kaestat


@dataclass(frozen=True)
class Provenance:
    """Enough to make the same result again; no dates, so the same analysis gives the same files.

    Attributes
    ----------
    command : str
        The command line.
    source : str
        Name of the log.
    sha256 : str or None
        Checksum of the file, or of the names and contents of the files of a folder; None for a simulated log.
    seed, n_boot, min_visits : int
    versions : dict
        Of Python and the libraries that compute.
    """

    command: str
    source: str
    sha256: str | None
    seed: int
    n_boot: int
    min_visits: int
    versions: dict[str, str]


def versions() -> dict[str, str]:
    """Versions of Python, kaestat and the libraries that compute."""
    libraries = {name: version(name) for name in ("numpy", "scipy", "pandas")}
    return {"python": platform.python_version(), "kaestat": kaestat.__version__} | libraries


def installed_version(package: str) -> str | None:
    """Version of an installed package; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def checked_out_commit(folder: str | os.PathLike[str]) -> str | None:
    """The commit checked out in a folder, marked if files differ from it; None outside a git checkout."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain")
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + (" (with uncommitted changes)" if changed else "")


def _git(folder: str | os.PathLike[str], *arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def checksum(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file, or of the names and contents of all files in a folder."""
    path, digest = Path(path), hashlib.sha256()
    if path.is_file():
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    for file in sorted(part for part in path.rglob("*") if part.is_file()):
        digest.update(f"{file.relative_to(path).as_posix()} {checksum(file)}\n".encode())
    return digest.hexdigest()
