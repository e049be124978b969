"""The numbers and figures of "Choose a baseline" are what the committed script measures; worked examples are short."""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kaestat import RewardLog

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = DOCS / "figures"
LONGEST_EXAMPLE = 50
REAL = Path(os.environ.get("KAESTAT_DATA", "")) / "acc_step_500_dev.json"


def module(name: str):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FIGURES)
        return sys.modules.get(name) or importlib.import_module(name)


def table(name: str) -> pd.DataFrame:
    return pd.read_csv(FIGURES / f"{name}.csv")


def same(found: pd.DataFrame, kept: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(found.reset_index(drop=True), kept, rtol=1e-4, check_dtype=False)


def test_curves_are_what_the_script_measures():
    same(module("choice_numbers").curves(), table("choice_curves"))


def test_map_is_what_the_script_measures():
    same(module("choice_numbers").choice_map(), table("choice_map"))


if REAL.is_file():

    def test_real_run_is_what_the_script_measures():
        same(module("choice_numbers").real_run(RewardLog.read(REAL)), table("choice_real_run"))


def test_table_of_the_real_run_shows_the_measured_numbers():
    rows = re.findall(r"^\| (\[`.*?) \| (.*?) ± (.*?) \| (.*?) \|$", (DOCS / "choose.md").read_text(), re.MULTILINE)
    shown = {name: cells for names, *cells in rows for name in re.findall(r"\[`(.*?)`\]", names)}
    kept = {
        row.method: [f"{1e3 * row.mse:.2f}", f"{1e3 * row.se:.2f}", f"{row.ratio_to_grpo:.2f}"]
        for row in table("choice_real_run").itertuples()
    }
    assert shown == kept


def test_example_on_large_groups_uses_the_measured_numbers():
    rows = re.search(r"in \[(\(2, .*?)\]:", (DOCS / "choose.md").read_text())[1]
    curves = (
        table("choice_curves").query("axis == 'group_size'").pivot_table(index="at", columns="method", values="mse")
    )
    for size, kae, grpo in re.findall(r"\((\d+), ([\d.]+), ([\d.]+)\)", rows):
        measured = 1e3 * curves.loc[float(size), ["kae", "rloo"]]
        np.testing.assert_allclose([float(kae), float(grpo)], measured, atol=0.005)


def test_table_where_assumption_6_fails_is_the_diagnosis_of_the_small_model():
    rows = re.findall(r"^\| (.*?) \| (\d+) \((\d+)\) \| ([\d.]*) ?\|$", (DOCS / "choose.md").read_text(), re.MULTILINE)
    names = {
        "best constant of each prompt": "best_baseline",
        "`kae`, weighted by exact score norms": "kae@exact",
        "the true value": "oracle",
    }
    gradient, value = (
        pd.read_csv(DOCS.parent / "results" / "tiny" / f"{table}.csv").query("step == 10").set_index("method")
        for table in ("gradient_mse_debiased", "value_mse")
    )
    assert len(rows) == 7
    for label, mse, se, value_mse in rows:
        method = names.get(label, label.strip("`"))
        assert (mse, se) == (f"{gradient.loc[method, 'mse']:.0f}", f"{gradient.loc[method, 'se']:.0f}")
        if method in value.index:
            assert float(value_mse) == pytest.approx(1e3 * value.loc[method, "mse_debiased"], rel=0.02)


@pytest.mark.parametrize("name", ["choice_curves", "choice_map"])
def test_figures_are_drawn_in_both_schemes_and_the_same_each_time(name):
    drawn = module("choice_figures").drawn
    light = drawn(name, "light")
    assert light.startswith(b"<?xml")
    assert light == drawn(name, "light") != drawn(name, "dark")


@pytest.mark.parametrize("page", ["baseline", "selector", "adapter", "study"])
def test_worked_example_of_an_extension_is_short(page):
    first = re.search(r"^```python\n(.*?)^```", (DOCS / "extend" / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)[
        1
    ]
    assert len(first.splitlines()) < LONGEST_EXAMPLE
