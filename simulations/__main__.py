"""``python -m simulations list | run STUDY | replay STUDY CELL REPLICATE``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from simulations import studies
from simulations.harness import RunSettings, Study, replay, run
from simulations.harness.runner import StudyResult

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
console, errors = Console(), Console(stderr=True)

SeedOption = Annotated[int, typer.Option(help="Seed of all random numbers.")]


@app.command("list")
def list_studies() -> None:
    """Name, size and aim of every study."""
    table = Table("study", "cells", "replicates", "aims")
    for name in studies.names():
        study = studies.get(name)
        table.add_row(name, str(len(study.cells)), str(study.replicates), study.aims)
    console.print(table)


@app.command("run")
def run_study(
    study: Annotated[str, typer.Argument(help="Name of a study (see list).")],
    scale: Annotated[float, typer.Option(help="Factor on the number of replicates.")] = 1.0,
    seed: SeedOption = 0,
    jobs: Annotated[int, typer.Option(help="Workers.")] = 2,
    backend: Annotated[str, typer.Option(help="loky (processes), ray (a cluster) or sequential.")] = "loky",
    out: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results/simulations"),
) -> None:
    """Run a study, or go on with it; print its summary."""
    chosen = _get(study)
    try:
        settings = RunSettings(out=out, seed=seed, scale=scale, jobs=jobs, backend=backend)
        result = _run_with_progress(chosen, settings)
    except (ValueError, OSError, ImportError) as error:
        _fail(str(error))
    _print_frame(result.summary if result.conclusion is None else result.conclusion)
    console.print(f"{result.computed} shards computed; everything lies in {result.folder}")
    if result.failures:
        _fail(
            f"{len(result.failures)} shards failed, first: {result.failures[0]['error']} (see {result.folder}/failures)"
        )


@app.command("replay")
def replay_one(
    study: Annotated[str, typer.Argument(help="Name of a study.")],
    cell: Annotated[str, typer.Argument(help="Factors of the cell as JSON, for example '{\"h\": 0.1}'.")],
    replicate: Annotated[int, typer.Argument(help="Number of the replicate.")],
    seed: SeedOption = 0,
) -> None:
    """Compute one replicate again and print its columns."""
    chosen = _get(study)
    try:
        factors = json.loads(cell)
        found = next(c for c in chosen.cells if dict(c.factors) == factors)
    except json.JSONDecodeError as error:
        _fail(f"cell is no JSON: {error}")
    except StopIteration:
        _fail(f"study {study!r} has no cell {cell}; one of its cells is {json.dumps(dict(chosen.cells[0].factors))}")
    try:
        samples = replay(chosen, found, replicate, seed)
    except ValueError as error:
        _fail(str(error))
    console.print_json(json.dumps({name: float(column[0]) for name, column in samples.items()}))


def _run_with_progress(study: Study, settings: RunSettings) -> StudyResult:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task(study.name)
        return run(study, settings, progress=lambda done, total: bar.update(task, completed=done, total=total))


def _get(name: str) -> Study:
    try:
        return studies.get(name)
    except ValueError as error:
        _fail(str(error))


def _print_frame(frame) -> None:
    table = Table(*[str(column) for column in frame.columns])
    for row in frame.itertuples(index=False):
        table.add_row(*[f"{value:.4g}" if isinstance(value, float) else str(value) for value in row])
    console.print(table)


def _fail(message: str) -> None:
    errors.print(f"[red]error:[/red] {message}", highlight=False)
    raise typer.Exit(2)


if __name__ == "__main__":
    app()
