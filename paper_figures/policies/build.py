"""Figure and tables of a study of policies."""

import os
from pathlib import Path

import pandas as pd

from llm_experiments.study.contrasts import best_groups, differences, speed
from paper_figures.policies.figures import figure
from paper_figures.policies.results import read_study
from paper_figures.policies.tables import (
    AREA_CAPTION,
    END_CAPTION,
    RATES_CAPTION,
    SPEED_CAPTION,
    area_table,
    end_table,
    numbered,
    rates_table,
    speed_table,
)
from paper_figures.shared.output import write_csv, write_figure, write_table


def build(folder: str | os.PathLike) -> None:
    """Write ``speed.csv``, ``differences.csv``, their tables, and the figure, from the curves in a results folder.

    Raises FileNotFoundError if the folder holds no results of a study.
    Raises ValueError if they lack the recommended design, or a design on one of the base models.
    """
    folder = Path(folder)
    config, curves, names = read_study(folder)
    rates = pd.read_csv(folder / "rates.csv")
    groups = {base: name for base, name in best_groups(rates, config.designs).items() if base in set(curves["base"])}
    speeds = speed(curves, config.budget, groups)
    gaps = pd.concat([differences(curves, config.budget, each) for each in (config.recommended, groups)])
    write_csv(speeds.round(4), folder, "speed")
    write_csv(gaps.round(5), folder, "differences.csv.gz")
    facts = {
        "reference": names[config.reference],
        "recommended": names[config.recommended],
        "groups": ", ".join(
            f"{list(groups.values()).count(name)} times {names[name]}" for name in sorted(set(groups.values()))
        ),
        "budget": config.budget,
        "bases": numbered(curves["base"].nunique(), "base model"),
        "seeds": numbered(len(config.seeds), "seed"),
        "passes": config.tests.passes,
    }
    write_table(speed_table(speeds, names), folder, "speed", SPEED_CAPTION.format(**facts))
    write_table(area_table(gaps, names), folder, "area", AREA_CAPTION.format(**facts))
    own = gaps[gaps["reference"] == config.recommended]
    write_table(end_table(own, names, config.tests.passes), folder, "end", END_CAPTION.format(**facts))
    caption = RATES_CAPTION.format(seeds=numbered(len(config.rate_seeds), "seed"))
    write_table(rates_table(rates, names), folder, "rates", caption)
    write_figure(figure(folder), folder, "curves")
