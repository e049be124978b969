"""``python -m paper_figures``: every study, table and figure, and the page that shows them."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

try:
    import jinja2  # noqa: F401  (the report needs both at its end: without them no work shall begin)
    import matplotlib  # noqa: F401
    import typer
    from rich.console import Console

    from paper_figures.report.page import headline
    from paper_figures.report.reproduce import reproduce
except ImportError as error:
    sys.exit(f"error: {error.name} is not installed; the reproduction needs: pip install -e '.[simulations]'")

FAILED, USAGE, INTERRUPTED = 1, 2, 130  # exit codes


def main(
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("results/reproduce"),
    scale: Annotated[float, typer.Option(help="Factor on the number of replicates.")] = 1.0,
    jobs: Annotated[int, typer.Option(help="Workers.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
) -> None:
    """Run all studies, or go on with them; build all tables and figures; analyse reward logs; write one report.

    A real reward log is analysed too where the environment variable KAESTAT_DATA names its folder. Exit code 1 if a
    part failed; the report shows which.
    """
    errors = Console(stderr=True)
    say = partial(errors.print, highlight=False, markup=False, soft_wrap=True)
    try:
        report = reproduce(out, seed=seed, scale=scale, jobs=jobs, data=os.environ.get("KAESTAT_DATA"), say=say)
    except (ValueError, OSError) as error:
        say(f"error: {error}", style="red")
        raise typer.Exit(USAGE) from None
    except KeyboardInterrupt:
        say("interrupted; what is done is kept, run it again to go on.", style="red")
        raise typer.Exit(INTERRUPTED) from None
    print(headline(report.findings(), report.failures))
    print(f"Report: {(out / 'index.html').resolve()}")
    if report.failures:
        raise typer.Exit(FAILED)


if __name__ == "__main__":
    typer.run(main)
