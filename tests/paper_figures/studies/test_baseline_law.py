"""The law's table and figures, from tables of two cells."""

import numpy as np
import pandas as pd
import pytest

from paper_figures.studies import baseline_law
from simulations.baseline_law.designs import DESIGNS
from simulations.baseline_law.judgement import COMPARED

CELLS = ("habit_adamw_64", "real_plain_sgd_8")


@pytest.fixture
def folder(tmp_path):
    inputs = pd.DataFrame(
        [(cell, point, base, 0.6, 1.2) for cell in CELLS for point in (0.1, 0.5) for base in (0, 1)],
        columns=["cell", "point", "base", "value", "ratio"],
    )
    measured = pd.DataFrame(
        {
            "cell": cell,
            "design": name,
            "area": 0.7 + 0.01 * k,
            "predicted": 0.6 + 0.1 * k,
            "completions": np.inf if name == "grpo_16" else 0.5 + 0.1 * k,
            "completions_low": 0.4 + 0.1 * k,
            "completions_high": np.inf if name == "grpo_16" else 0.6 + 0.1 * k,
        }
        for cell in CELLS
        for k, name in enumerate(DESIGNS)
    )
    verdicts = pd.DataFrame(
        {
            "cell": cell,
            "held_out": cell == CELLS[1],
            "designs": 15,
            "reference": "grpo_4",
            "rank_correlation": 0.912,
            "rank_se": 0.034,
            "within_factor": 9,
            "slope": 0.75,
        }
        for cell in CELLS
    )
    contrasts = pd.DataFrame(
        [(cell, a, b, -0.021, 0.004, 0.001) for cell in CELLS for a in COMPARED for b in COMPARED if a != b],
        columns=["cell", "design", "other", "difference", "half", "p"],
    )
    tables = {"inputs": inputs, "measured": measured, "verdicts": verdicts, "contrasts": contrasts}
    for name, frame in tables.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


def test_table_and_figures_are_written(folder):
    baseline_law.write(folder)
    for name in ("regions", "agreement"):
        assert (folder / "figures" / f"{name}.png").stat().st_size > 10_000
    table = (folder / "tables" / "cells.md").read_text()
    assert (
        "| habit, AdamW, B = 64 | 0.60 – 0.60 | 1.20 – 1.20 | GRPO-4 | -2.1 ± 0.4 | 0.91 ± 0.03 | 9 of 14 | 0.75 |"
        in table
    )
    assert "real plain, SGD, B = 8 (held out)" in table


def test_the_winner_of_a_cell_is_its_largest_mean_accuracy_and_clear_if_its_interval_says_so(folder):
    tables = baseline_law.read(folder)
    places = baseline_law._places(tables).set_index("cell")
    assert (places["winner"] == "value").all()  # the last of the three in the order of designs
    assert not places["clear"].any()
    tables["contrasts"]["difference"] = 0.02
    assert baseline_law._places(tables)["clear"].all()


def test_measured_models_stand_at_their_value_and_ratio_in_adams_units(folder):
    rows = [("own", 4, "adam", "p", 0.5, 0.4, 0.6), ("own", 4, "adam", "rho", 2.0, 1.5, 3.0)]
    rows += [("own", 4, "plain", "p", 0.5, 0.4, 0.6), ("own", 4, "plain", "rho", 9.0, 8.0, 10.0)]
    columns = ["cell", "step", "metric", "quantity", "value", "low", "high"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "summary.csv", index=False)
    models = baseline_law.measured_models(folder)
    assert models[["value", "ratio", "low", "high"]].to_numpy().tolist() == [[0.5, 2.0, 1.5, 3.0]]
    lines = baseline_law.regions(baseline_law.read(folder), models).axes[0].lines
    assert [0.5, 2.0] in [[*line.get_xdata(), *line.get_ydata()] for line in lines]
