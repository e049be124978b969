"""``python -m simulations list | run STUDY | replay STUDY CELL REPLICATE``."""

import json
import sys
from pathlib import Path
from typing import Annotated, NoReturn

try:
    import pandas as pd
    import typer
    from rich.console import Console
    from rich.progress import Progress

    from simulations import studies
    from simulations.harness import RunSettings, Study, WorkerDied, replay, run
except ImportError as error:
    sys.exit(f"error: {error.name} is not installed; the simulations need: pip install -e '.[simulations]'")

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
FAILED, USAGE, INTERRUPTED = 1, 2, 130  # exit codes

SeedOption = Annotated[int, typer.Option(help="Seed of all random numbers.")]


@app.command("list")
def list_studies() -> None:
    """Name, size and aim of every study."""
    chosen = map(studies.get, studies.names())
    rows = [(study.name, len(study.cells), study.replicates, study.aims) for study in chosen]
    _print_frame(pd.DataFrame(rows, columns=["study", "cells", "replicates", "aims"]))


@app.command("run")
def run_study(
    study: Annotated[str, typer.Argument(help="Name of a study (see list).")],
    scale: Annotated[float, typer.Option(help="Factor on the number of replicates.")] = 1.0,
    seed: SeedOption = 0,
    jobs: Annotated[int, typer.Option(help="Workers.")] = 2,
    out: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results/simulations"),
) -> None:
    """Run a study, or go on with it; print its summary. Exit code 1 if a part of it failed."""
    chosen, console = _get(study), Console(stderr=True)
    try:
        with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task(study, total=None)
            settings = RunSettings(out=out, seed=seed, scale=scale, jobs=jobs)
            result = run(chosen, settings, progress=lambda done, total: bar.update(task, completed=done, total=total))
    except (ValueError, OSError) as error:
        _fail(f"{study}: {error}", USAGE)
    except WorkerDied as error:
        _fail(str(error), FAILED)
    except KeyboardInterrupt:
        _fail(f"{study}: interrupted; finished shards are kept, run it again to go on.", INTERRUPTED)
    _print_frame(result.summary if result.conclusion is None else result.conclusion)
    print(f"{result.computed} shards computed; everything lies in {result.folder}")
    for failure in result.failures[:1]:
        _fail(
            f"{len(result.failures)} parts of {study} failed, first: {failure['error']}\n"
            f"  all traces are in {result.folder}/provenance.json; the cells that failed are not in the table\n"
            f"  see it fail: {failure.get('replay', 'in the trace')}",
            FAILED,
        )


@app.command("replay")
def replay_one(
    study: Annotated[str, typer.Argument(help="Name of a study.")],
    cell: Annotated[str, typer.Argument(help="Factors of the cell as JSON, for example '{\"h\": 0.1}'.")],
    replicate: Annotated[int, typer.Argument(min=0, help="Number of the replicate.")],
    seed: SeedOption = 0,
) -> None:
    """Compute one replicate again and print its columns; one that fails does so here, with its trace."""
    chosen = _get(study)
    try:
        factors = json.loads(cell)
        if not isinstance(factors, dict):
            raise ValueError(f"got {cell}")
    except ValueError as error:  # json's own is one
        _fail(f"cell must be a JSON object of factors, for example '{{\"h\": 0.1}}': {error}.", USAGE)
    try:
        of_cell, settings = chosen.cell(factors), RunSettings(out="", seed=seed)
    except ValueError as error:
        _fail(str(error), USAGE)
    samples = replay(chosen, of_cell, replicate, settings.seed)
    print(json.dumps({name: float(column[0]) for name, column in samples.items()}, indent=2))


def _get(name: str) -> Study:
    try:
        return studies.get(name)
    except ValueError as error:
        _fail(str(error), USAGE)


def _print_frame(frame: pd.DataFrame) -> None:
    print(frame.to_string(index=False, na_rep="", float_format="{:.4g}".format))


def _fail(message: str, code: int) -> NoReturn:
    Console(stderr=True).print(f"error: {message}", style="red", highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(code)


if __name__ == "__main__":
    app(prog_name="python -m simulations")
