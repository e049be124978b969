"""``python -m llm_experiments paper TABLE``: the parts of a plan, one after the other."""

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from llm_experiments.paper.needs import needs
from llm_experiments.paper.plan import ARTEFACTS, Machinery, Part, plan, reached, wanted_runs
from llm_experiments.training.config import RunConfig
from llm_experiments.training.verl.command import Machines, verl_overrides
from llm_experiments.training.verl.launch import ROOT, check_with_verl, places_in


def paper(
    artefact: Annotated[str, typer.Argument(help=f"{', '.join(ARTEFACTS)}, or all.")],
    gpus: Annotated[int, typer.Option(help="GPUs of each machine; 0 for a CPU, with --backend trl.")] = 4,
    nodes: Annotated[int, typer.Option(help="Machines of the Ray cluster, with --backend verl.")] = 1,
    backend: Annotated[Literal["verl", "trl"], typer.Option(help="What trains.")] = "verl",
    config: Annotated[Path | None, typer.Option(help="Another configuration in place of the paper's.")] = None,
    suite: Annotated[str, typer.Option(help="Of the evaluation; see evaluate.")] = "paper",
    data: Annotated[Path | None, typer.Option(envvar="KAESTAT_DATA", help="Folder of local files.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder of models, checkpoints and records.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Folder of result tables.")] = Path("results"),
    option: Annotated[list[str] | None, typer.Option(help="Of verl, for every run; see launch-verl.")] = None,
    all_variants: Annotated[
        bool, typer.Option("--all-variants", help="All variants of the configurations, and not the paper's alone.")
    ] = False,
    keep_checkpoints: Annotated[
        bool, typer.Option("--keep-checkpoints", help="Of runs that are done; otherwise they are removed.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and show everything; run nothing.")] = False,
) -> int:
    """Train, diagnose, evaluate, and set a table or figure of the paper beside one of your own.

    The trained model, its snapshots and the records of a run stay. The checkpoints to go on from go once it is done.

    Interrupt it at any moment, and run it again: finished parts are skipped, and the interrupted part continues.
    """
    runs, results, data, config = (None if each is None else each.absolute() for each in (runs, results, data, config))
    more = {"options": tuple(option or ()), "config": config, "all_variants": all_variants}
    machinery = Machinery(backend, gpus, nodes, runs, results, data, suite, **more)
    runs_of, parts = wanted_runs(artefact, machinery), plan(artefact, machinery)
    names, left_out = reached(artefact, machinery)
    print(f"Makes {', '.join(names)}.", *(f"Leaves out {line}" for line in left_out), sep="\n", flush=True)
    if dry_run:
        for part in parts:
            print(f"{'done' if _is_done(part) else 'to do'}: {part.name}\n  {shlex.join(part.command)}")
        for line in needs(runs_of, machinery):
            print(line)
        if backend == "verl":
            print(_checked(runs_of, machinery))
        return 0
    return run_parts(parts, gpus=gpus, keep_spent=keep_checkpoints, say=lambda line: print(line, flush=True))


def run_parts(parts: list[Part], *, gpus: int, say: Callable[[str], None], keep_spent: bool = False) -> int:
    """Run the parts that are not done, in order; the first that fails ends it, with its exit code.

    gpus: Of this machine. So many parts that take one GPU run side by side.
    say: Takes a line for the user.
    keep_spent: Keep what nobody needs once a part is done (`Part.spent`).
    """
    waiting = list(enumerate(parts, start=1))
    free, running, failed = list(range(max(gpus, 1))), {}, 0
    signal.signal(signal.SIGTERM, lambda *_: [process.terminate() for process in running])
    while waiting or running:
        while waiting and not failed:
            number, part = waiting[0]
            heading = f"[{number}/{len(parts)}] {part.name}"
            if _is_done(part):
                say(f"{heading}: done")
                _remove(part, keep_spent)
                waiting.pop(0)
                continue
            taken = free if part.alone else free[:1]
            if not taken or (part.alone and running) or any(other.alone for other, *_ in running.values()):
                break
            say(heading)
            process = subprocess.Popen(part.command, cwd=ROOT, env=_environment(part, taken, gpus))
            running[process] = (part, heading, list(taken), time.monotonic())
            free = [gpu for gpu in free if gpu not in taken]
            waiting.pop(0)
        if not running:
            break
        ended = _wait(running)
        part, heading, taken, begin = running.pop(ended)
        free = sorted(free + taken)
        code = ended.returncode if ended.returncode >= 0 else 128 - ended.returncode  # as shells say it
        if code:
            say(f"{heading}: failed with exit code {code}. Run the same line again to go on from here.")
            failed = failed or code
        else:
            say(f"{heading}: {(time.monotonic() - begin) / 3600:.2f} h")
            _remove(part, keep_spent)
    return failed


def _wait(running: Iterable[subprocess.Popen]) -> subprocess.Popen:
    """The first process that ends. An interrupt from the keyboard reaches all by itself, and they are given time."""
    while True:
        try:
            for process in running:
                if process.poll() is not None:
                    return process
            time.sleep(0.1)
        except KeyboardInterrupt:
            continue


def _environment(part: Part, taken: list[int], gpus: int) -> dict[str, str] | None:
    """With the part's own GPU, where it takes one of several."""
    if part.alone or gpus < 2:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return os.environ | {"CUDA_VISIBLE_DEVICES": visible[taken[0]] if len(visible) >= gpus else str(taken[0])}


def _remove(part: Part, keep: bool) -> None:
    if part.spent is not None and not keep:
        shutil.rmtree(part.spent, ignore_errors=True)


def _is_done(part: Part) -> bool:
    return part.done is not None and part.done.exists()


def _checked(runs_of: dict[Path, list[RunConfig]], machinery: Machinery) -> str:
    """Every run of the plan, put through verl's own checks where it is installed."""
    machines, places = Machines(machinery.gpus, machinery.nodes), places_in(machinery.runs)
    verdicts = {
        check_with_verl([*verl_overrides(run, machines, places), *machinery.options])
        for runs in runs_of.values()
        for run in runs
    }
    return "\n".join(sorted(verdicts))
