"""``python -m paper_figures.policies results/studies/NAME``: figure and tables of a study of policies."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

try:
    import pandas as pd
    import typer

    from llm_experiments.study.contrasts import differences, speed
    from paper_figures.policies.figures import figure
    from paper_figures.policies.results import read_study
    from paper_figures.policies.tables import (
        CHECK_CAPTION,
        COST_CAPTION,
        END_CAPTION,
        RATES_CAPTION,
        SPEED_CAPTION,
        check_table,
        cost_table,
        end_table,
        rates_table,
        speed_table,
    )
    from paper_figures.shared.output import write_csv, write_figure, write_table
except ImportError as error:
    sys.exit(f"error: {error.name} is not installed; studies of policies need: pip install -e '.[llm,simulations]'")


def build(folder: str | os.PathLike) -> None:
    """Write ``speed.csv``, ``differences.csv``, their tables, and the figure, from the curves in a results folder.

    Raises
    ------
    FileNotFoundError
        If the folder holds no results of a study.
    ValueError
        If they lack the reference.
    """
    folder = Path(folder)
    config, curves, names = read_study(folder)
    speeds = speed(curves, config.budget, config.reference)
    against = [name for name in dict.fromkeys([config.reference, config.control]) if name in names]
    gaps = pd.concat([differences(curves, config.budget, name) for name in against], ignore_index=True)
    write_csv(speeds.round(4), folder, "speed")
    write_csv(gaps.round(5), folder, "differences")
    facts = {
        "reference": names[config.reference],
        "budget": config.budget,
        "bases": len(config.world.bases),
        "seeds": len(config.seeds),
        "passes": config.tests.passes,
    }
    write_table(speed_table(speeds, gaps, names), folder, "speed", SPEED_CAPTION.format(**facts))
    own = gaps[gaps["reference"] == config.reference]
    write_table(end_table(own, names, config.tests.passes), folder, "end", END_CAPTION.format(**facts))
    rates, caption = pd.read_csv(folder / "rates.csv"), RATES_CAPTION.format(seeds=len(config.rate_seeds))
    write_table(rates_table(rates, names), folder, "rates", caption)
    if (folder / "check.csv").is_file():
        write_table(check_table(pd.read_csv(folder / "check.csv"), names), folder, "check", CHECK_CAPTION)
    if (folder / "cost.csv").is_file():
        cost = pd.read_csv(folder / "cost.csv")
        caption = COST_CAPTION.format(turns=cost["turns"].max(), **facts)
        write_table(cost_table(cost, speeds, names), folder, "cost", caption)
    write_figure(figure(folder), folder, "curves")


def main(folder: Annotated[Path, typer.Argument(help="Results folder of a study.")]) -> None:
    """Build the figure and the tables of a study of policies."""
    try:
        build(folder)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(f"Tables and figures: {folder.resolve()}")


if __name__ == "__main__":
    typer.run(main)
