"""The inputs of the law for the cells of one configuration, and what the law predicts from them."""

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from kaestat.core.result_tables import write_table
from kaestat.core.storage import write_atomically
from llm_experiments.provenance import provenance
from llm_experiments.starting import ProgressBar

from .cell import COMPLETIONS, DIGITS, PROMPTS, PROVENANCE, Cell
from .config import LawConfig
from .prediction import predictions
from .summary import summary_table

PREDICTIONS, SUMMARY = "predictions.csv", "summary.csv"


class LawMeasurement:
    """The inputs of the law for one file of cells.

    runs: Folder of models, completions and norms: large, and can be made again.
    results: Folder of all results; this file's are in ``results/law/NAME``.
    data: Folder of local files of the tasks; see `with_local_file`.
    """

    def __init__(self, config: LawConfig, *, runs: Path, results: Path, data: Path | None, progress: ProgressBar):
        self.config, self._runs, self._data, self._progress = config, runs, data, progress
        self.folder, self.results = runs / "law" / config.name, results / "law" / config.name

    def run(self, cells: Sequence[str] | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Measure cells, and write the tables of all that are measured.

        cells: None takes all.
        Returns summary: See `summary.summary_table`.
        Returns predicted: See `prediction.predictions`.
        Raises ValueError if a cell is unknown, rewards are neither 0 nor 1, or what is kept is of other weights or
            settings.
        """
        unknown = [name for name in cells or () if name not in self.config.cells]
        if unknown:
            raise ValueError(f"cell {unknown[0]!r} is none of the file's: {', '.join(self.config.cells)}.")
        for name in cells or self.config.cells:
            Cell(
                name, self.config.cells[name], runs=self._runs, folder=self.folder / name, data=self._data,
                progress=self._progress,
            ).measure()  # fmt: skip
        return self.collect()

    def collect(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Write the tables of the cells that are measured, and give what `run` gives."""
        kept = {name: self.folder / name for name in self.config.cells if (self.folder / name / PROVENANCE).exists()}
        completions = [pd.read_csv(folder / COMPLETIONS, dtype={"prompt": str}) for folder in kept.values()]
        prompts = [pd.read_csv(folder / PROMPTS, dtype={"prompt": str}) for folder in kept.values()]
        means = {name: Cell.means(folder) for name, folder in kept.items()}
        summary = pd.concat(
            [
                summary_table(name, rows, own, means[name], n_boot=self.config.n_boot)
                for name, rows, own in zip(kept, completions, prompts, strict=True)
            ],
            ignore_index=True,
        )
        predicted = pd.concat(
            [predictions(name, own, means[name]) for name, own in zip(kept, prompts, strict=True)], ignore_index=True
        )
        write_table(self.results / PREDICTIONS, predicted, DIGITS)
        write_table(self.results / COMPLETIONS, pd.concat(completions, ignore_index=True), DIGITS)
        write_table(self.results / PROMPTS, pd.concat(prompts, ignore_index=True), DIGITS)
        write_table(self.results / SUMMARY, summary, DIGITS)
        origin = provenance(self.config) | {
            "cells": {name: json.loads((folder / PROVENANCE).read_text()) for name, folder in kept.items()}
        }
        write_atomically(self.results / PROVENANCE, json.dumps(origin, indent=1, sort_keys=True) + "\n")
        return summary, predicted
