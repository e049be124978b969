"""A virtual environment with nothing but a wheel, what it requires, and a test runner; made without an index."""

import subprocess
import venv
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from zipfile import Path as ZipPath
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

RUNNER = ("pytest", "hypothesis")


def wheel_distribution(wheel: Path) -> PathDistribution:
    """The wheel's metadata, as an installer reads them."""
    with ZipFile(wheel) as archive:
        (folder,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
    return PathDistribution(ZipPath(wheel, f"{folder}/"))


def minimal_environment(folder: Path, wheel: Path) -> Path:
    """Make the environment and return its interpreter.

    pip installs the wheel. What it requires is linked from the running environment, so that no index is needed.
    """
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    (site_packages,) = (folder / "lib").glob("python3.*/site-packages")
    required = requirements(wheel_distribution(wheel))
    for installed in closure([*required, *RUNNER]):
        link(installed, site_packages)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", wheel]
    subprocess.run(pip, check=True)
    return python


def requirements(package: Distribution) -> list[str]:
    """Names of what it requires here without any extra."""
    required = map(Requirement, package.requires or [])
    return [r.name for r in required if r.marker is None or r.marker.evaluate({"extra": ""})]


def closure(names: list[str]) -> list[Distribution]:
    """The installed distributions of those names, and all that they require."""
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in found:
            found[name] = distribution(name)
            waiting += requirements(found[name])
    return list(found.values())


def link(installed: Distribution, site_packages: Path) -> None:
    """Link the top-level entries of an installed distribution into another ``site-packages``."""
    for top in {file.parts[0] for file in installed.files or []} - {"..", "__pycache__"}:
        target = site_packages / top
        if not target.exists():
            target.symlink_to(str(installed.locate_file(top)))
