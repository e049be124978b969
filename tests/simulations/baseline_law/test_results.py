"""The committed tables: predictions that the code still makes, and a planted fault that makes them worse."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simulations.baseline_law.cells import CELLS, named
from simulations.baseline_law.prediction import predictions

FOLDER = Path(__file__).parents[3] / "results" / "baseline_law"


@pytest.fixture(scope="module")
def verdicts():
    return pd.read_csv(FOLDER / "verdicts.csv").set_index("cell")


def test_predictions_are_those_that_were_committed():
    cell = named("loud_muon_64")
    kept = pd.read_csv(FOLDER / "predictions.csv")
    kept = kept[kept["cell"] == cell.name].set_index("design")
    made = predictions(cell).set_index("design")
    # Paths run in single precision, whose last bits differ between machines.
    np.testing.assert_allclose(made["completions"], kept.loc[made.index, "completions"], rtol=0.02)


def test_every_judged_cell_is_a_declared_one_with_predictions(verdicts):
    predicted = pd.read_csv(FOLDER / "predictions.csv")
    assert set(verdicts.index) <= {cell.name for cell in CELLS} == set(predicted["cell"])
    assert len(verdicts) >= 12


def test_the_planted_fault_makes_the_prediction_worse(verdicts):
    """Plain units where Adam's count, in the world where they say different things."""
    row = verdicts.loc["loud_adamw_64"]
    assert row["plain_rank_correlation"] < row["rank_correlation"]
    assert row["plain_median_factor"] > row["median_factor"]


def test_every_base_has_a_rate_of_the_grid():
    """A rate is on the grid of its cell, a power of two from its middle."""
    rates = pd.read_csv(FOLDER / "rates.csv.gz")
    for name, own in rates.groupby("cell"):
        steps = np.log2(own["rate"] / named(str(name)).first_rates[1])
        np.testing.assert_allclose(steps, steps.round(), atol=1e-4)
        assert own.groupby("design")["base"].nunique().eq(6).all()
