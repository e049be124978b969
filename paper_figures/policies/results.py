"""What a study of policies left in its results folder."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from llm_experiments.study.config import StudyConfig
from paper_figures.policies.names import name_of


def read_study(folder: Path) -> tuple[StudyConfig, pd.DataFrame, dict[str, str]]:
    """The configuration, the curves, and what the designs that were run are called, in the study's order.

    Raises
    ------
    FileNotFoundError
        If the folder holds no results of a study.
    ValueError
        If they lack the reference.
    """
    return _read(folder, "curves.csv")


def read_rate_runs(folder: Path) -> tuple[StudyConfig, pd.DataFrame, dict[str, str]]:
    """As `read_study`, with the curves of the runs that choose learning rates."""
    return _read(folder, "rate_curves.csv")


def _read(folder: Path, name: str) -> tuple[StudyConfig, pd.DataFrame, dict[str, str]]:
    if not (folder / name).is_file():
        raise FileNotFoundError(f"{folder}: holds no {name}; name the results folder of a study.")
    config = StudyConfig(**json.loads((folder / "provenance.json").read_text())["config"])
    curves = pd.read_csv(folder / name)
    run = set(curves["design"])
    if config.reference not in run:
        raise ValueError(f"{folder}: the reference {config.reference} was not run.")
    return config, curves, {key: name_of(each.model_dump()) for key, each in config.designs.items() if key in run}
