"""Each method's page has its figure, and the figure's numbers are what the committed script measures."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kaestat.baselines.registry import METHODS
from tests.helpers.hooks import hook
from tests.helpers.tiers import slow_after

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = DOCS / "figures"
KEPT = pd.read_csv(FIGURES / "method_spread.csv")
COMMAND = "run PYTHONPATH=. python docs/figures/method_numbers.py"


@pytest.mark.parametrize("name", KEPT["method"].unique())
def test_page_of_a_method_with_numbers_gets_its_figure(name):
    page = (DOCS / "methods" / f"{METHODS[name].page}.md").read_text()
    shown = hook("method_figures", "figures").with_figure(page, METHODS[name])
    assert shown.count(f"method_{METHODS[name].page}_light.svg") == 1


@pytest.mark.parametrize("name", slow_after(2, ["rloo", "kae_eb", "krpo"]))
def test_numbers_are_what_the_script_measures(name):
    kept = KEPT[KEPT["method"] == name].reset_index(drop=True)
    found = pd.DataFrame(list(hook("method_numbers", "figures").spread(name)), columns=kept.columns)
    pd.testing.assert_frame_equal(found, kept, rtol=1e-4, atol=1e-8, check_dtype=False)


def test_bias_and_variance_are_those_of_values_that_are_known():
    """Of normal errors with mean .5 and variance .04 the parts are .25 and .04; one draw too many would not be."""
    error = 0.5 + 0.2 * np.random.default_rng(0).standard_normal((400, 5, 30, 2))
    bias2, variance, mse = (part.mean() for part in hook("method_numbers", "figures").decomposed(error, 40))
    assert bias2 == pytest.approx(0.25, abs=0.003) and variance == pytest.approx(0.04, abs=0.001)
    assert mse == pytest.approx(0.29, abs=0.003)
    assert bias2 + variance == pytest.approx(mse, rel=1e-2)
