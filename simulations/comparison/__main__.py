"""``python -m simulations.comparison LOG``: every method on one number; what has been computed already is kept."""

import json
from pathlib import Path
from typing import Annotated

import typer

from kaestat.core.result_tables import write_table
from kaestat.core.storage import write_atomically
from simulations.comparison.page import written
from simulations.comparison.real_log import real_log
from simulations.comparison.worlds import noise, paths
from simulations.harness.provenance import provenance


def main(
    log: Annotated[
        Path, typer.Argument(help="Accuracies of a run of eight completions: the public acc_step_500.json.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the tables.")] = Path("results/methods"),
    page: Annotated[Path, typer.Option(help="Page whose tables are written anew.")] = Path("docs/choose.md"),
) -> None:
    """Compute the tables that are missing in OUT, a minute, and write them into the page."""
    out.mkdir(parents=True, exist_ok=True)
    for name, compute in (("real_log", lambda: real_log(log)), ("paths", paths), ("noise", noise)):
        file = out / f"{name}.csv"
        if file.exists():
            typer.echo(f"{file}: kept")
            continue
        write_table(file, compute(), 6)
        write_atomically(
            out / f"{name}.provenance.json", json.dumps(provenance(seed=0), indent=1, sort_keys=True) + "\n"
        )
        typer.echo(f"{file}: written")
    write_atomically(page, written(page.read_text(), out))


if __name__ == "__main__":
    typer.run(main)
