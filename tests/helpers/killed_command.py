"""A command, killed with SIGKILL at chosen moments of its own writing, then run to the end.

    python -m tests.helpers.killed_command COMMAND FOLDER [once]

The moments are exact, and so the same in every run: in the n-th file that is flushed to the disk, with half of its
bytes there, before it takes its place, or after; ``once`` is in the middle of the run alone. The command's modules are
imported once; each run is a fork.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from functools import partial
from pathlib import Path

from kaestat.core import storage

LEFT = re.compile(r"\..*\.tmp")  # hidden files and folders that nothing reads


def analyze(folder: Path) -> None:
    from kaestat.report.cli import run

    options = ["--method", "kae", "--method", "grpo", "--n-boot", "40"]
    assert run(["analyze", str(folder.parent / "log.csv"), *options, "--out", str(folder)]) == 0


def simulations(folder: Path) -> None:
    from simulations.__main__ import app

    options = ["--scale", "0.01", "--jobs", "1", "--backend", "sequential", "--out", str(folder)]
    app(["run", "one_shot", *options], standalone_mode=False)


def paper_figures(folder: Path) -> None:
    from kaestat.datasets import simulated_run
    from paper_figures.report import logs
    from paper_figures.report.reproduce import reproduce
    from paper_figures.report.sections import SECTIONS

    logs.N_BOOT = 40
    logs.simulated_run = partial(simulated_run, n_prompts=60, n_epochs=8)
    sections = [section for section in SECTIONS if section.name == "one_shot"]
    assert reproduce(folder, scale=0.01, jobs=1, sections=sections).failures == []


def diagnose(folder: Path) -> None:
    from llm_experiments import cli

    sys.argv = ["llm_experiments", "diagnose", "--config", str(folder.parent / "config.yaml"),
                "--runs", str(folder / "runs"), "--results", str(folder / "results")]  # fmt: skip
    try:
        cli.main()
    except SystemExit as end:
        assert not end.code, end.code


def llm_figures(folder: Path) -> None:
    from paper_figures.llm.__main__ import build

    build(folder)


COMMANDS: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "analyze": (analyze, ["kaestat.report.commands", "kaestat.report.plots"]),
    "simulations": (simulations, ["simulations.__main__"]),
    "paper_figures": (
        paper_figures,
        ["paper_figures.report.reproduce", "paper_figures.report.sections", "kaestat.report.plots"],
    ),
    "diagnose": (diagnose, ["llm_experiments.cli", "torch", "transformers"]),
    "llm_figures": (llm_figures, ["paper_figures.llm.__main__"]),
}


def forked(work: Callable[[], None]) -> int:
    """Wait status of ``work`` in a fork of this process."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    code = 1
    try:
        with redirect_stdout(io.StringIO()):
            work()
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_in_write(number: int, moment: str) -> None:
    """From now on, the ``number``-th file (from 1) that is flushed is this process's last."""
    replace, fsync, count = os.replace, os.fsync, [0]

    def counted_fsync(descriptor: int) -> None:
        count[0] += 1
        if count[0] == number and moment == "half":
            with suppress(OSError):  # folders, and files open for reading, cannot be cut
                os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            die()
        fsync(descriptor)

    def counted_replace(*arguments, **keywords) -> None:
        if count[0] >= number and moment == "before":
            die()
        replace(*arguments, **keywords)
        if count[0] >= number and moment == "after":
            die()

    storage.os.fsync, storage.os.replace = counted_fsync, counted_replace


def writes(work: Callable[[], None], counter: Path) -> int:
    """Files that a whole run of ``work`` writes; each is a byte in ``counter``."""
    fsync = os.fsync

    def counted() -> None:
        def once(descriptor: int) -> None:
            with open(counter, "ab") as file:
                file.write(b".")
            fsync(descriptor)

        storage.os.fsync = once
        work()

    status = forked(counted)
    if status != 0:
        sys.exit(f"the whole run failed with wait status {status}")
    return counter.stat().st_size


def files(folder: Path) -> dict[str, bytes]:
    """Contents by name, without what a killed writer left."""
    names = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(name): (folder / name).read_bytes() for name in names if not any(map(LEFT.fullmatch, name.parts))}


def main() -> None:
    """Kill the command in one folder, let it finish, and print what was seen as JSON."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    work, modules = COMMANDS[name]
    for module in modules:
        importlib.import_module(module)
    if name == "llm_figures":
        for copy in ("whole", "killed"):
            shutil.copytree(folder / "results", folder / copy)
    total = writes(lambda: work(folder / "whole"), folder / "count")
    expected, kills, torn = files(folder / "whole"), 0, set()
    middle = (total // 2, "half")
    again_and_again = ((1, "half"), (1, "before"), middle, (2, "half"), (2, "after"))
    for number, moment in (middle,) if sys.argv[3:] == ["once"] else again_and_again:

        def doomed(number: int = number, moment: str = moment) -> None:
            kill_in_write(number, moment)
            work(folder / "killed")

        status = forked(doomed)
        kills += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        seen = files(folder / "killed") if (folder / "killed").exists() else {}
        torn |= {name for name, content in seen.items() if len(content) < 0.8 * len(expected.get(name, b""))}
    status = forked(lambda: work(folder / "killed"))
    found = files(folder / "killed")
    print(
        json.dumps(
            {
                "writes": total,
                "kills": kills,
                "torn": sorted(torn),
                "status": status,
                "missing": sorted(set(expected) - set(found)),
                "more": sorted(set(found) - set(expected)),
                "differ": sorted(name for name in set(found) & set(expected) if found[name] != expected[name]),
            }
        )
    )


if __name__ == "__main__":
    main()
