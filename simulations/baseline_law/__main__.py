"""``python -m simulations.baseline_law predict | run | judge``; what has been computed already is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from kaestat.core.result_tables import write_table
from kaestat.core.storage import write_atomically
from simulations.baseline_law import cells, judgement, prediction, study
from simulations.baseline_law.cells import CELLS, Cell
from simulations.baseline_law.rates import RateAtEdge
from simulations.harness.provenance import provenance
from simulations.harness.study import content_hash

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
OutOption = Annotated[Path, typer.Option(help="Folder of the tables.")]
WorkOption = Annotated[Path, typer.Option(help="Folder of the single cells; what lies there is kept.")]
LONG = ("contrasts", "measured", "rates")  # kept compressed
DIGITS = 6
OUT, WORK = Path("results/baseline_law"), Path("runs/baseline_law")
SEEDS_OF_ALL = (cells.BASES, cells.TUNING_SEEDS, cells.SEEDS)
COMPUTING = ("world", "optimisers", "designs", "training", "study", "rates", "endpoints")


@app.command("predict")
def predict(out: OutOption = OUT) -> None:
    """Measure the law's inputs on short paths and write the predictions; to be committed before any comparison."""
    _write(out, "inputs", pd.concat([prediction.inputs_table(cell) for cell in CELLS]))
    _write(out, "predictions", pd.concat([prediction.predictions(cell) for cell in CELLS]))
    # What the planted fault would have predicted.
    _write(out, "predictions_plain", pd.concat([prediction.predictions(cell, plain=True) for cell in CELLS]))


@app.command("run")
def run(
    only: Annotated[list[str] | None, typer.Option(help="Cells; all if none is named.")] = None,
    out: OutOption = OUT,
    work: WorkOption = WORK,
) -> None:
    """Search rates and compare, cell by cell, some minutes each; the predictions must be there."""
    if not (out / "predictions.csv").is_file():
        raise SystemExit(f"error: {out}/predictions.csv is missing; write and commit the predictions first (predict).")
    for cell in [cells.named(name) for name in only] if only else CELLS:
        try:
            _of_cell(cell, work)
        except RateAtEdge as error:
            raise SystemExit(f"error: {error}") from None


@app.command("judge")
def judge(
    out: OutOption = OUT,
    work: WorkOption = WORK,
    held_out: Annotated[bool, typer.Option(help="Judge the held-out cells too.")] = False,
) -> None:
    """Write what was measured beside what was predicted, and the rule's verdict on each cell that is there."""
    predicted, plain = (pd.read_csv(out / f"{name}.csv") for name in ("predictions", "predictions_plain"))
    made: dict[str, list[pd.DataFrame]] = {}
    for cell in CELLS:
        if not _file(work, cell, "runs").is_file() or (cell.held_out and not held_out):
            continue
        tuning, runs = _of_cell(cell, work)
        best = study.chosen(tuning)
        table = judgement.measured(cell, runs, tuning, predicted[predicted["cell"] == cell.name])
        fault = plain[plain["cell"] == cell.name].set_index("design")["completions"]
        verdict = judgement.verdict(cell, runs, table) | judgement.of_fault(table, fault)
        rates = best.rename_axis("base").reset_index().melt("base", var_name="design", value_name="rate")
        parts = {
            "measured": table,
            "verdicts": pd.DataFrame([verdict]),
            "rates": rates.assign(cell=cell.name)[["cell", "design", "base", "rate"]],
            "contrasts": judgement.contrasts(cell, runs),
        }
        for name, part in parts.items():
            made.setdefault(name, []).append(part)
    for name, found in made.items():
        _write(out, name, pd.concat(found))
    typer.echo(pd.concat(made["verdicts"]).round(3).to_string() if made else "no cell has been computed yet (run)")


def _of_cell(cell: Cell, work: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tuning and comparison of a cell, computed or read."""
    tuning = _kept(_file(work, cell, "tuning"), lambda: study.tuned(cell))
    return tuning, _kept(_file(work, cell, "runs"), lambda: study.compared(cell, study.chosen(tuning)))


def _kept(file: Path, compute: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    if not file.exists():
        write_table(file, compute(), DIGITS)
        typer.echo(f"{file}: written")
    return pd.read_csv(file)


def _file(work: Path, cell: Cell, part: str) -> Path:
    """Of a cell as it is declared, below a folder of the code that computes: results of different ones never mix."""
    declared = {"cell": asdict(cell), "world": asdict(cell.spec), "budget": asdict(cell.budget), "seeds": SEEDS_OF_ALL}
    return work / _code() / f"{cell.name}_{content_hash(declared)[:8]}_{part}.csv"


@cache
def _code() -> str:
    here = Path(__file__).parent
    return content_hash({name: (here / f"{name}.py").read_text() for name in COMPUTING})[:16]


def _write(out: Path, name: str, frame: pd.DataFrame) -> None:
    file = out / f"{name}.csv{'.gz' if name in LONG else ''}"
    write_table(file, frame, DIGITS)
    facts = json.dumps(provenance(seed=study.SEED), indent=1, sort_keys=True)
    write_atomically(out / f"{name}.provenance.json", facts + "\n")
    typer.echo(f"{file}: written")


if __name__ == "__main__":
    app(prog_name="python -m simulations.baseline_law")
