"""What a study of policies left in its results folder."""

import json
from pathlib import Path

import pandas as pd

from kaestat.core.result_tables import table_file
from llm_experiments.study.config import StudyConfig
from llm_experiments.training.stacked.config import Design
from paper_figures.shared.charts import LABELS

WEIGHTS = {"none": "", "adam": ", weights in Adam's units"}
OWN = LABELS | {"rloo": "RLOO", "reinforce++": "Batch mean"}  # elsewhere RLOO's value stands for GRPO's


def read_study(folder: Path) -> tuple[StudyConfig, pd.DataFrame, dict[str, str]]:
    """The configuration, the curves, and what the designs that were run are called, in the study's order.

    Raises FileNotFoundError if the folder holds no results of a study.
    Raises ValueError if they lack the recommended design, or a design on one of the base models.
    """
    file = table_file(folder / "curves.csv")
    if not file.is_file():
        raise FileNotFoundError(f"{folder}: holds no curves.csv; name the results folder of a study.")
    content = json.loads((folder / "provenance.json").read_text())["config"]
    for design in content["designs"].values():
        for gone in ("sampling", "correction"):  # settings of earlier versions, of which no study has another value
            design.pop(gone, None)
    for gone in ("optimizer", "updates", "left_out"):
        content.pop(gone, None)
    content["world"].pop("options", None)
    config = StudyConfig(**content)
    curves = pd.read_csv(file)
    run = set(curves["design"])
    for design in run:
        lacking = sorted(set(curves["base"]) - set(curves.loc[curves["design"] == design, "base"]))
        if lacking:
            raise ValueError(f"{folder}: {design} was not run on base model {lacking[0]}; run the study to its end.")
    if config.recommended not in run:
        raise ValueError(f"{folder}: the recommended design, {config.recommended}, was not run.")
    return config, curves, {key: name_of(each) for key, each in config.designs.items() if key in run}


def name_of(design: Design) -> str:
    """A design in a few words, such as ``GRPO, G = 8, live groups only``."""
    parts = [OWN.get(design.method, design.method), f"G = {design.group_size}"]
    if design.coding == "signed":
        parts[0] += ", rewards of ±1"
    if design.keys == "all":
        parts[0] = "One constant"
    parts[0] += WEIGHTS[design.weights]
    if design.filtered:
        parts.append("live groups only")
    return ", ".join(parts)
