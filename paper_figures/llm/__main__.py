"""``python -m paper_figures.llm results/NAME``: tables and figures of a diagnostic run, from its results alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

try:
    import typer
    from rich.console import Console

    from llm_experiments.diagnose.results import Results, read_results
    from paper_figures.llm import figures, tables
except ImportError as error:
    sys.exit(f"error: {error.name} is not installed; tables and figures need: pip install -e '.[simulations]'")

USAGE = 2  # exit code


def build(folder: str | os.PathLike) -> Results:
    """Write ``tables/`` and ``figures/`` below a results folder.

    Raises FileNotFoundError, ValueError if the folder holds no results, or such as cannot be read.
    """
    results = read_results(folder)
    tables.write(results, folder)
    figures.write(results, folder)
    return results


def main(folder: Annotated[Path, typer.Argument(help="Results folder of a diagnostic run.")]) -> None:
    """Build the tables and figures of a diagnostic run, and say whether KAE < GRPO < REINFORCE++."""
    try:
        results = build(folder)
    except (ValueError, OSError) as error:
        Console(stderr=True).print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(USAGE) from None
    for row in tables.orders(results).itertuples():
        interval = f"{row.difference:.3g} [{row.ci_low:.3g}, {row.ci_high:.3g}]"
        print(f"step {row.step}, {row.measure}: {row.comparison}: {row.verdict} ({interval})")
    print(f"Tables and figures: {folder.resolve()}")


if __name__ == "__main__":
    typer.run(main)
