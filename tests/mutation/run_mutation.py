"""Mutation testing with cosmic-ray: put small faults into a module, one at a time, and see whether its tests notice.

    python -m tests.mutation.run_mutation kaestat/smoothing/kernels.py kaestat/logs/risk.py

cosmic-ray writes each fault into the file itself, so all of this happens in a copy of the tree. The kinds of fault are
chosen in ``cosmic-ray.toml`` beside this file, the tests of a module in ``tested_modules.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutation.tested_modules import TESTED

ROOT = Path(__file__).parents[2]
SETTINGS = Path(__file__).with_name("cosmic-ray.toml")
COPIED = ("kaestat", "tests", "conftest.py", "pyproject.toml")
QUICK = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
TRIED = [("normal", "killed"), ("normal", "survived")]  # what cosmic-ray says of worker and tests
PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider")


def configuration(module: str, python: str = sys.executable) -> str:
    """The settings of ``cosmic-ray.toml`` for one module and its tests, as TOML."""
    command = shlex.join([python, *PYTEST, *TESTED[module].arguments])
    chosen = {"module-path": module, "test-command": command}
    lines = [
        "[cosmic-ray]",
        *(f"{key} = {json.dumps(value)}" for key, value in chosen.items()),
        "excluded-modules = []",
    ]
    return SETTINGS.read_text().replace("[cosmic-ray]", "\n".join(lines), 1)


def survivors(dump: str) -> tuple[int, list[str]]:
    """Of what ``cosmic-ray dump`` prints: how many faults were tried, and the survivors' lines without and with them.

    Raises
    ------
    RuntimeError
        If a fault could not be tried.
    """
    tried, found = 0, []
    for work, result in map(json.loads, dump.splitlines()):
        if result is None:
            raise RuntimeError(f"{work['mutations'][0]} was not tried.")
        if result["worker_outcome"] == "skipped":
            continue
        if (result["worker_outcome"], result["test_outcome"]) not in TRIED:
            raise RuntimeError(f"{work['mutations'][0]}: {result['output']}")
        tried += 1
        if result["test_outcome"] == "survived":
            (mutation,) = work["mutations"]
            changed = [
                line for line in result["diff"].splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")
            ]
            where = f"{mutation['module_path']}:{mutation['start_pos'][0]} {mutation['operator_name']}"
            found.append("\n  ".join([where, *changed]))
    return tried, found


def run(module: str, folder: Path) -> tuple[int, list[str]]:
    """Put every fault into the module of a copied tree; see `survivors`.

    Raises
    ------
    subprocess.CalledProcessError
        If its tests do not pass without a fault.
    """

    def call(command: str, *arguments: str) -> str:
        program = str(Path(sys.executable).with_name(command))
        return subprocess.run(
            [program, *arguments], cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    environment = os.environ | QUICK | {"PYTHONPATH": str(folder)}
    settings, session = folder / "module.toml", folder / "session.sqlite"
    settings.write_text(configuration(module))
    call("cosmic-ray", "init", "--force", settings.name, session.name)
    call("cosmic-ray", "baseline", settings.name)
    call("cr-filter-operators", session.name, settings.name)
    call("cosmic-ray", "exec", settings.name, session.name)
    return survivors(call("cosmic-ray", "dump", session.name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="module", help=f"by default all of: {', '.join(TESTED)}")
    modules = parser.parse_args().modules or list(TESTED)
    for module in modules:
        if module not in TESTED:
            parser.error(f"{module} has no tests in tested_modules.py; choose from {', '.join(TESTED)}.")
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            source, target = ROOT / name, Path(folder) / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        for module in modules:
            tried, found = run(module, Path(folder))
            print(f"{module}: {tried} faults, {len(found)} survive", *found, sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
