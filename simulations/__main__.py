"""``python -m simulations list | run STUDY | replay STUDY CELL REPLICATE``."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

try:
    import typer
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, TaskID
    from rich.table import Table
except ImportError as error:
    sys.exit(f"error: {error.name} is not installed; the simulations need: pip install -e '.[simulations]'")

from kaestat.report.progress import progress_bar
from simulations import studies
from simulations.harness import RunSettings, Study, WorkerDied, replay, run

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
# Without a terminal a table may be as wide as it is.
console, errors = Console(width=None if sys.stdout.isatty() else 400), Console(stderr=True)

ALL = "all"
FAILED, USAGE, INTERRUPTED = 1, 2, 130  # exit codes

SeedOption = Annotated[int, typer.Option(help="Seed of all random numbers.")]


@app.command("list")
def list_studies() -> None:
    """Name, size and aim of every study."""
    table = Table("study", "cells", "replicates", "aims")
    for name in studies.names():
        study = studies.get(name)
        table.add_row(name, str(len(study.cells)), str(study.replicates), escape(study.aims))
    console.print(table)


@app.command("run")
def run_study(
    study: Annotated[str, typer.Argument(help="Name of a study (see list), or all.")],
    scale: Annotated[float, typer.Option(help="Factor on the number of replicates.")] = 1.0,
    seed: SeedOption = 0,
    jobs: Annotated[int, typer.Option(help="Workers.")] = 2,
    backend: Annotated[str, typer.Option(help="loky (processes) or sequential.")] = "loky",
    out: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results/simulations"),
) -> None:
    """Run a study, or go on with it; print its summary. Exit code 1 if a part of it failed."""
    chosen = [_get(name) for name in (studies.names() if study == ALL else [study])]
    try:
        settings = RunSettings(out=out, seed=seed, scale=scale, jobs=jobs, backend=backend)
    except ValueError as error:
        _fail(str(error), USAGE)
    failed = [one.name for one in chosen if not _run_and_report(one, settings)]
    if failed:
        raise typer.Exit(FAILED)


@app.command("replay")
def replay_one(
    study: Annotated[str, typer.Argument(help="Name of a study.")],
    cell: Annotated[str, typer.Argument(help="Factors of the cell as JSON, for example '{\"h\": 0.1}'.")],
    replicate: Annotated[int, typer.Argument(help="Number of the replicate.")],
    seed: SeedOption = 0,
) -> None:
    """Compute one replicate again and print its columns; one that fails does so here, with its trace."""
    chosen = _get(study)
    try:
        factors = json.loads(cell)
        if not isinstance(factors, dict):
            raise ValueError("cell must be a JSON object of factors, for example '{\"h\": 0.1}'.")
        found = chosen.cell(factors)
        settings = RunSettings(out="", seed=seed)
        if replicate < 0:
            raise ValueError(f"replicate must be 0 or more, got {replicate}.")
    except json.JSONDecodeError as error:
        _fail(f"cell is not JSON: {error}; give an object of factors, for example '{{\"h\": 0.1}}'.", USAGE)
    except ValueError as error:
        _fail(str(error), USAGE)
    samples = replay(chosen, found, replicate, settings.seed)
    console.print_json(json.dumps({name: float(column[0]) for name, column in samples.items()}))


def _run_and_report(study: Study, settings: RunSettings) -> bool:
    """Whether all of it succeeded."""
    try:
        with progress_bar(errors) as bar:
            result = run(study, settings, progress=partial(_show, bar, bar.add_task(study.name, total=None)))
    except (ValueError, OSError, ImportError) as error:
        _fail(f"{study.name}: {error}", USAGE)
    except WorkerDied as error:
        _fail(str(error), FAILED)
    except KeyboardInterrupt:
        _fail(f"{study.name}: interrupted; finished shards are kept, run it again to go on.", INTERRUPTED)
    _print_frame(study.name, result.summary if result.conclusion is None else result.conclusion)
    console.print(f"{result.computed} shards computed; everything lies in {escape(str(result.folder))}")
    if result.damaged:
        _warn(f"{len(result.damaged)} damaged shard files were set aside and computed again, first {result.damaged[0]}")
    for failure in result.failures[:1]:
        _warn(f"error: {len(result.failures)} parts of {study.name} failed, first: {failure['error']}")
        _warn(f"  all traces are in {result.folder}/provenance.json; the cells that failed are not in the table")
        if "replay" in failure:
            _warn(f"  see it fail: {failure['replay']}")
    return not result.failures


def _show(bar: Progress, task: TaskID, done: int, total: int) -> None:
    if bar.tasks[0].total is None:
        bar.reset(task, completed=done)  # what was there already is no speed
    bar.update(task, completed=done, total=total)


def _get(name: str) -> Study:
    try:
        return studies.get(name)
    except ValueError as error:
        _fail(str(error), USAGE)


def _print_frame(title: str, frame) -> None:
    table = Table(title=title)
    for column in frame.columns:
        table.add_column(escape(str(column)), overflow="fold")
    for row in frame.itertuples(index=False):
        table.add_row(*[escape(_text(value)) for value in row])
    console.print(table)


def _text(value: object) -> str:
    if value is None or value != value:  # nan
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _warn(message: str) -> None:
    errors.print(message, style="red", highlight=False, markup=False, soft_wrap=True)


def _fail(message: str, code: int) -> NoReturn:
    _warn(f"error: {message}")
    raise typer.Exit(code)


if __name__ == "__main__":
    app(prog_name="python -m simulations")
