"""The sdist and the wheel: what is in them, and that the wheel works with what it requires and nothing else."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from zipfile import Path as ZipPath
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
OPTIONAL = ("torch", "transformers", "trl", "matplotlib", "typer", "rich", "jinja2", "pyarrow", "yaml")
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
NOT_SOURCE = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist", "results", "runs", "site")
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


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel built from it, by the command that a release would use."""
    source, out = tmp_path_factory.mktemp("source") / "kaestat", tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT, source, ignore=NOT_SOURCE)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert "no files found" not in ran.stderr, ran.stderr
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def python(built, tmp_path_factory):
    """The interpreter of an environment with the wheel and its requirements alone."""
    return minimal_environment(tmp_path_factory.mktemp("minimal") / "venv", built[1])


def run(python, *arguments, cwd, status=0):
    """Run in that environment as a user would who has no checkout; what it prints on both streams."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    environment.pop("KAESTAT_DATA", None)
    ran = subprocess.run([python, *arguments], capture_output=True, text=True, check=False, cwd=cwd, env=environment)
    assert ran.returncode == status, ran.stdout[-5000:] + ran.stderr[-3000:]
    return ran.stdout + ran.stderr


def library_files():
    """All files of the library in the checkout."""
    files = (path for path in (ROOT / "kaestat").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in files}


def test_wheel_holds_the_whole_library_and_nothing_else(built):
    with ZipFile(built[1]) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == library_files()
    assert {"kaestat/py.typed", "kaestat/report/templates/report.html", "kaestat/integrations/verl/trainer.py"} <= names


def test_wheel_s_metadata(built):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    package = wheel_distribution(built[1])
    assert built[1].name == f"kaestat-{project['version']}-py3-none-any.whl"
    assert sorted(requirements(package)) == ["array-api-compat", "numpy", "pandas", "scipy"]
    assert set(package.metadata.get_all("Provides-Extra")) == set(project["optional-dependencies"])
    entry_points = {(point.group, point.name, point.value) for point in package.entry_points}
    assert entry_points == {
        ("console_scripts", "kaestat", "kaestat.report.cli:main"),
        ("verl.plugins", "kaestat", "kaestat.integrations.verl"),
    }
    assert package.metadata["License-Expression"] == "Apache-2.0"
    assert package.read_text("licenses/LICENSE") == (ROOT / "LICENSE").read_text()
    assert package.metadata["Requires-Python"] == ">=3.11"


def test_sdist_holds_what_the_wheel_is_built_from(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if archive.getmember(name).isfile()}
    names = {name for name in names if not name.startswith("kaestat.egg-info/")}
    assert names == library_files() | {
        "CHANGELOG.md",
        "CITATION.cff",
        "LICENSE",
        "MANIFEST.in",
        "PKG-INFO",
        "README.md",
        "pyproject.toml",
        "setup.cfg",
    }


@pytest.mark.slow
def test_installed_package_is_the_wheel_s_and_no_optional_library_is_there(python, tmp_path):
    code = (
        "import importlib.util, kaestat\n"
        f"print(kaestat.__file__, [name for name in {OPTIONAL} if importlib.util.find_spec(name)])"
    )
    file, _, present = run(python, "-W", "error", "-c", code, cwd=tmp_path).strip().partition(" ")
    assert Path(file).is_relative_to(python.parents[1]) and Path(file).parts[-3] == "site-packages"
    assert present == "[]"


@pytest.mark.slow
def test_command_without_its_extra_says_in_one_line_what_to_install(python, tmp_path):
    for arguments in (["--help"], ["analyze", "rewards.csv"], []):
        said = run(python.with_name("kaestat"), *arguments, cwd=tmp_path, status=2)
        assert re.fullmatch(r"kaestat: \w+ is not installed; .* pip install 'kaestat\[cli\]'\n", said)


@pytest.mark.slow
def test_what_needs_an_extra_names_it(python, tmp_path):
    (tmp_path / "log.parquet").write_bytes(b"PAR1")
    said = run(python, "-c", "import kaestat\nkaestat.read_log('log.parquet')", cwd=tmp_path, status=1)
    assert "pip install 'kaestat[parquet]'" in said.splitlines()[-1]


@pytest.mark.slow
def test_installed_library_s_examples_run(python, tmp_path):
    """Those of the modules that need no optional library."""
    installed = python.parents[1].joinpath("lib").glob("python3.*/site-packages/kaestat")
    said = run(python, *PYTEST, "--doctest-modules", "--doctest-ignore-import-errors", *installed, cwd=tmp_path)
    assert n_passed(said) > 20


def n_passed(said):
    """Number of tests in pytest's last line, which must tell of no failure."""
    (last,) = re.findall(r"^(\d+) passed(?:, \d+ (?:skipped|deselected|warnings?))* in .*", said, re.MULTILINE)
    return int(last)
