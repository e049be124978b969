"""``python -m llm_experiments paper TABLE``: the parts of a plan, one after the other."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from llm_experiments.paper.plan import CONFIGS, TABLES, Machinery, Part, plan
from llm_experiments.training.experiment import load_experiment
from llm_experiments.training.verl.command import Machines, verl_overrides
from llm_experiments.training.verl.launch import ROOT, check_with_verl, places_in, run_command


class Backend(StrEnum):
    """What trains."""

    verl = "verl"
    trl = "trl"


def paper(
    table: Annotated[str, typer.Argument(help=f"{', '.join(TABLES)}.")],
    gpus: Annotated[int, typer.Option(help="GPUs of each machine; 0 for a CPU, with --backend trl.")] = 4,
    nodes: Annotated[int, typer.Option(help="Machines of the Ray cluster, with --backend verl.")] = 1,
    backend: Annotated[Backend, typer.Option(help="What trains.")] = Backend.verl,
    config: Annotated[Path | None, typer.Option(help="Another configuration in place of the paper's.")] = None,
    suite: Annotated[str, typer.Option(help="Of the evaluation; see evaluate.")] = "paper",
    data: Annotated[Path | None, typer.Option(envvar="KAESTAT_DATA", help="Folder of local files.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder of models, checkpoints and records.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Folder of result tables.")] = Path("results"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and show everything; run nothing.")] = False,
) -> int:
    """Everything that a table of the paper takes: training, diagnostics, evaluation, and the table beside the paper's.

    Interrupt it at any moment, and run it again: what is done is passed over, and the part that was at work goes on.
    """
    places = [None if each is None else each.absolute() for each in (runs, results, data, config)]
    machinery = Machinery(backend.value, gpus, nodes, places[0], places[1], places[2], suite)
    parts = plan(table, machinery, places[3])
    if dry_run:
        for part in parts:
            print(f"{'done' if _is_done(part) else 'to do'}: {part.name}\n  {shlex.join(part.command)}")
        if backend is Backend.verl:
            print(_checked(table, machinery, places[3]))
        return 0
    return run_parts(parts, say=lambda line: print(line, flush=True))


def run_parts(parts: list[Part], *, say: Callable[[str], None]) -> int:
    """Run the parts that are not done, one after the other; the first that fails ends it, with its exit code."""
    for number, part in enumerate(parts, start=1):
        heading = f"[{number}/{len(parts)}] {part.name}"
        if _is_done(part):
            say(f"{heading}: done")
            continue
        say(heading)
        begin = time.monotonic()
        code = run_command(part.command, ROOT)
        if code:
            say(f"{heading}: failed with exit code {code}. Run the same line again to go on from here.")
            return code
        say(f"{heading}: {(time.monotonic() - begin) / 3600:.2f} h")
    return 0


def _is_done(part: Part) -> bool:
    return part.done is not None and part.done.exists()


def _checked(table: str, machinery: Machinery, config: Path | None) -> str:
    """Every run of the plan, put through verl's own checks where it is installed."""
    files = [config] if config is not None else [CONFIGS / "training" / f"{name}.yaml" for name in TABLES[table][1]]
    verdicts = {
        check_with_verl(verl_overrides(run, Machines(machinery.gpus, machinery.nodes), places_in(machinery.runs)))
        for file in files
        for run in load_experiment(file)
    }
    return "\n".join(sorted(verdicts))
