"""The law's figures, from tables of two cells."""

import numpy as np
import pandas as pd
import pytest

from paper_figures.studies import baseline_law

CELLS = ("habit_adamw_64", "real_plain_sgd_8")
SINGLE = ("none", "none_signed", "value")


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
        for k, name in enumerate([*SINGLE, "grpo_4", "grpo_16"])
    )
    contrasts = pd.DataFrame(
        [(cell, a, b, -0.021, 0.004, 0.001) for cell in CELLS for a in SINGLE for b in SINGLE if a != b],
        columns=["cell", "design", "other", "difference", "half", "p"],
    )
    tables = {"inputs": inputs, "measured": measured, "contrasts": contrasts}
    for name, frame in tables.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


def test_measured_completions_stand_at_the_predicted_ones_and_those_never_reached_at_the_edge(folder):
    adamw, others = baseline_law.agreement(baseline_law.read(folder)).axes
    assert [axes.get_title() for axes in (adamw, others)] == ["AdamW", "B = 8 and 256"]
    points = [(*line.get_xdata(), *line.get_ydata(), line.get_marker()) for line in adamw.lines]
    assert (0.6, 0.5, "v") in points and (0.6 + 0.1 * 4, baseline_law.LARGEST, "^") in points


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
