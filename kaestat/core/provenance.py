"""The provenance of a result: the input, its checksum, the settings and the versions."""

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kaestat.core.version import __version__

SOURCES = ("*.py", "*.yaml", "*.toml", ":(exclude)tests")
"""Files that a result depends on, as git's patterns: no tests."""


@dataclass(frozen=True)
class Provenance:
    """All that is needed to reproduce a result. It has no dates, so the same analysis gives the same files."""

    command: str  # The command line
    source: str  # Name of the log
    # Checksum of the file, or of the names and contents of the files of a folder; None for a simulated log
    sha256: str | None
    seed: int
    n_boot: int
    min_visits: int
    versions: dict[str, str]  # Of Python and the libraries that compute


def versions() -> dict[str, str]:
    """Versions of Python, kaestat and the numerical libraries."""
    from importlib.metadata import version  # takes a thirtieth of the time in which the command line starts

    libraries = {name: version(name) for name in ("numpy", "scipy", "pandas")}
    return {"python": platform.python_version(), "kaestat": __version__} | libraries


def installed_version(package: str) -> str | None:
    """Version of an installed package; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def time_and_commit(folder: str | os.PathLike[str]) -> dict[str, str | None]:
    """The current time in UTC and the commit of the code in ``folder``, see `checked_out_commit`: ``time, commit``."""
    return {"time": datetime.now(UTC).isoformat(timespec="seconds"), "commit": checked_out_commit(folder)}


def environment(packages: Iterable[str]) -> dict[str, Any]:
    """Python, packages and machine of this run as plain data, without paths or host name.

    Parameters
    ----------
    packages : iterable of str
        Packages whose versions are recorded; None for one that is not installed.
    """
    return {
        "python": sys.version.split()[0],
        "packages": {name: installed_version(name) for name in packages},
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
    }


def checked_out_commit(folder: str | os.PathLike[str]) -> str | None:
    """The commit checked out in a folder; None outside a git checkout.

    If source files (`SOURCES`) of the repository differ from the commit, a mark follows: the first digits of the
    checksum of the difference. Two results with the same changes have the same mark. Other files, such as results, do
    not count.
    """
    commit, top = git(folder, "rev-parse", "HEAD"), git(folder, "rev-parse", "--show-toplevel")
    if commit is None or top is None:
        return None
    difference = git(top, "diff", "HEAD", "--", *SOURCES) or ""
    added = git(top, "ls-files", "--others", "--exclude-standard", "--", *SOURCES) or ""
    if not (difference or added):
        return commit
    digest = hashlib.sha256(difference.encode())
    for name in added.splitlines():
        digest.update(f"{name} {checksum(Path(top, name))}\n".encode())
    return f"{commit} (with uncommitted changes {digest.hexdigest()[:12]})"


def git(folder: str | os.PathLike[str], *arguments: str) -> str | None:
    """The output of a git command in a folder; None outside a git checkout or without git."""
    try:
        ran = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
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
