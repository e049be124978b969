"""``python -m paper_figures.report.kept results/reproduce``: the tables of a whole report that pages quote, committed.

They lie in ``results/reproduced``, with eight digits; `docs/hooks/numbers_in_pages.py` takes numbers from them.
"""

import json
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from kaestat.core.result_tables import write_table
from kaestat.core.storage import write_atomically

KEPT = Path("results/reproduced")
DIGITS = 8
QUOTED = (
    "claims", "rates", "gradient", "assumption6", "regret", "table1", "table1_pool", "table2_reductions", "table2_pool",
    "sensitivity", "one_shot", "schedule", "selectors", "best_baselines",
    "audit_claims", "audit_differences",
)  # fmt: skip
LONG = ("gradient", "best_baselines")


def keep(report: Path, folder: Path = KEPT) -> None:
    """Copy the quoted tables of a report, and where they come from.

    Raises ValueError if the report is not of the whole number of replicates, or a part of it failed.
    """
    origin = json.loads((report / "provenance.json").read_text())
    if origin["scale"] != 1.0 or origin["failures"]:
        raise ValueError(
            f"{report}: scale {origin['scale']:g}, {len(origin['failures'])} parts failed; keep whole ones."
        )
    for name in QUOTED:
        # "none" is the name of a method.
        table = pd.read_csv(report / f"{name}.csv", keep_default_na=False, na_values=[""])
        ending = ".csv.gz" if name in LONG else ".csv"
        write_table(folder / f"{name}{ending}", table, DIGITS)
    made = {key: origin[key] for key in origin if key not in ("files", "seconds", "jobs", "failures")}
    write_atomically(folder / "provenance.json", json.dumps(made, indent=1) + "\n")


def main(report: Annotated[Path, typer.Argument(help="Folder of the report.")]) -> None:
    """Keep the tables that pages quote."""
    keep(report)
    typer.echo(f"Tables: {KEPT.resolve()}")


if __name__ == "__main__":
    typer.run(main)
