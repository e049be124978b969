"""The results folder of a diagnostic run: small CSV files, and where they came from.

Everything that tables and figures show is in these files; nothing of the pools is needed again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pandas as pd

from kaestat.core.result_tables import write_table
from kaestat.core.storage import write_atomically

TEXT = ("method", "reference", "kernel", "prompt", "quantity")  # columns
DIGITS = 6  # significant; Monte Carlo errors are in the second or third
PROVENANCE = "provenance.json"


@dataclass(frozen=True, eq=False)
class Results:
    """The frames of a run, all steps in each; None where that stage was not run.

    value_mse, value_mse_differences, value_sensitivity: See `value_mse` and `sensitivity`.
    gradient_mse, gradient_mse_debiased, gradient_mse_differences, gradient_mse_debiased_differences: See
        `gradient_mse`.
    score_norms, score_norms_summary: See `assumption6`.
    provenance: Plain data: configuration, versions, machine, times.
    """

    value_mse: pd.DataFrame | None = None
    value_mse_differences: pd.DataFrame | None = None
    value_sensitivity: pd.DataFrame | None = None
    gradient_mse: pd.DataFrame | None = None
    gradient_mse_differences: pd.DataFrame | None = None
    gradient_mse_debiased: pd.DataFrame | None = None
    gradient_mse_debiased_differences: pd.DataFrame | None = None
    score_norms: pd.DataFrame | None = None
    score_norms_summary: pd.DataFrame | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def frames(self) -> dict[str, pd.DataFrame]:
        """Those that are there, by name."""
        present = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "provenance"}
        return {name: frame for name, frame in present.items() if frame is not None}


def write_results(folder: Path, results: Results) -> None:
    """Write ``NAME.csv`` of each frame, and ``provenance.json``; files of stages that were not run stay as they are."""
    for name, frame in results.frames().items():
        write_table(folder / f"{name}.csv", frame, DIGITS)
    text = json.dumps(results.provenance, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_atomically(folder / PROVENANCE, text + "\n")


def read_results(folder: Path) -> Results:
    """Read a results folder.

    Raises FileNotFoundError if the folder holds no results.
    """
    paths = {part.name: folder / f"{part.name}.csv" for part in fields(Results)}
    frames = {name: _read(path) for name, path in paths.items() if path.exists()}
    if not frames:
        raise FileNotFoundError(f"{folder}: no results here, such as value_mse.csv; run the diagnostic first.")
    return Results(**frames, provenance=json.loads((folder / PROVENANCE).read_text(encoding="utf-8")))


def _read(path: Path) -> pd.DataFrame:
    """A table; "none" is a method, and no kernel is empty text."""
    text = dict.fromkeys(TEXT, str)
    frame = pd.read_csv(path, dtype=text, keep_default_na=False, na_values=[""])
    return frame.fillna({name: "" for name in TEXT if name in frame})
