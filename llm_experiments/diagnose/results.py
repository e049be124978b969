"""The results folder of a diagnostic run: small CSV files, and where they came from.

Everything that tables and figures show is in these files; nothing of the pools is needed again.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kaestat.core.result_tables import write_table
from kaestat.core.storage import write_atomically
from llm_experiments.diagnose.assumption6 import NORM_COLUMNS, SUMMARY_COLUMNS
from llm_experiments.diagnose.comparisons import DIFFERENCE_COLUMNS
from llm_experiments.diagnose.sensitivity import SENSITIVITY_COLUMNS
from llm_experiments.diagnose.value_mse import VALUE_COLUMNS, VALUE_DIFFERENCE_COLUMNS

TEXT, WHOLE = (("method", "reference", "kernel", "prompt", "quantity"), ("step", "n", "n_prompts"))
GRADIENT_COLUMNS = ["step", "method", "mse", "se", "n_prompts"]
COLUMNS: dict[str, list[str]] = {
    "value_mse": VALUE_COLUMNS,
    "value_mse_differences": VALUE_DIFFERENCE_COLUMNS,
    "value_sensitivity": SENSITIVITY_COLUMNS,
    "gradient_mse": GRADIENT_COLUMNS,
    "gradient_mse_differences": DIFFERENCE_COLUMNS,
    "gradient_mse_debiased": GRADIENT_COLUMNS,
    "gradient_mse_debiased_differences": DIFFERENCE_COLUMNS,
    "score_norms": NORM_COLUMNS,
    "score_norms_summary": SUMMARY_COLUMNS,
}
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
    Raises ValueError if a frame has other columns than it should, or a column holds something else than it should.
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

    def __post_init__(self):
        for name, frame in self.frames().items():
            _check(name, frame)

    def frames(self) -> dict[str, pd.DataFrame]:
        """Those that are there, by name."""
        present = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "provenance"}
        return {name: frame for name, frame in present.items() if frame is not None}


def write_results(folder: str | os.PathLike, results: Results) -> list[Path]:
    """Write ``NAME.csv`` of each frame, and ``provenance.json``; files of stages that were not run stay as they are.

    Returns: The files written.
    """
    folder, written = Path(folder), []
    for name, frame in results.frames().items():
        written.append(folder / f"{name}.csv")
        write_table(written[-1], frame, DIGITS)
    written.append(folder / PROVENANCE)
    text = json.dumps(results.provenance, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_atomically(written[-1], text + "\n")
    return written


def read_results(folder: str | os.PathLike) -> Results:
    """Read a results folder, checked.

    Raises FileNotFoundError if the folder holds no results.
    Raises ValueError if a file is not what it should be; the message names it.
    """
    folder = Path(folder)
    frames = {name: _read(folder / f"{name}.csv", name) for name in COLUMNS if (folder / f"{name}.csv").exists()}
    if not frames:
        raise FileNotFoundError(f"{folder}: no results here, such as value_mse.csv; run the diagnostic first.")
    path = folder / PROVENANCE
    try:
        provenance = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not a JSON file: {error}") from None
    return Results(**frames, provenance=provenance)


def _read(path: Path, name: str) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)  # "none" is a method, and no kernel is ""
        for column in frame.columns.difference(TEXT):
            if column in WHOLE:
                frame[column] = np.array([int(cell) for cell in frame[column]], dtype=np.int64)
            else:
                frame[column] = frame[column].replace("", np.nan).astype(float)
        _check(name, frame)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return frame


def _check(name: str, frame: pd.DataFrame) -> None:
    if frame.columns.tolist() != COLUMNS[name]:
        raise ValueError(f"{name} must have the columns {COLUMNS[name]}, got {frame.columns.tolist()}.")
    for column in frame:
        if column in TEXT:
            wanted, fits = "text", all(isinstance(cell, str) for cell in frame[column])
        elif column in WHOLE:
            wanted, fits = "whole numbers", frame[column].dtype.kind in "iu"
        else:
            wanted, fits = "numbers", frame[column].dtype.kind == "f"
        if not fits and len(frame):
            raise ValueError(f"{name}: column {column!r} must hold {wanted}, got {frame[column].dtype}.")
