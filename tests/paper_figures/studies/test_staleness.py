"""The builder of study ``staleness``: on a summary made by hand, and on the results that are kept."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from kaestat.report.plots import render
from paper_figures.shared.finding import FAILS, HOLDS
from paper_figures.shared.output import markdown
from paper_figures.studies import staleness

RESULTS = Path(__file__).parents[3] / "results" / "studies" / "staleness"
PLACES = (("together", 0), ("spread", 2), ("singly", 2))
RATES = {"kae_eb": 2.0, "rloo": 8.0}


def summary() -> pd.DataFrame:
    """By hand: every error is its way's rate, and one more for each step of lateness."""
    rows = []

    def row(method, measure, estimate, arrival=None, late=None):
        place = {"speed": "slow", "arrival": arrival, "staleness": late}
        rows.append(place | {"method": method, "measure": measure, "estimate": estimate, "mcse": 0.1, "n": 6})

    for arrival, late in PLACES:
        row(None, "lateness", late, arrival, late)
        row(None, "bias_to_gradient", 0.0, arrival, late)
        for kind in staleness.KINDS:
            row("now to then", f"{kind}_ratio", 3.0, arrival, late)
            for way, rate in RATES.items():
                row(way, f"{kind}_mse", rate + late, arrival, late)
                row(way, f"{kind}_to_rloo", (rate + late) / (8 + late), arrival, late)
                if late:
                    row(f"{way} @ {arrival} {late}", f"{kind}_to_fresh", (rate + late) / rate)
                if arrival == "singly":
                    row(f"{way} @ singly 2", f"{kind}_to_waiting", 0.5)
                    row(f"{way} @ singly 2", f"{kind}_to_rloo_waiting", 0.25)
    return pd.DataFrame(rows)


@pytest.fixture
def kept() -> dict[str, pd.DataFrame]:
    return staleness.read(RESULTS)


def test_tables_have_a_row_for_every_setting_and_way():
    made = staleness.tables(summary())
    error = made["errors"].set_index(["arrival", "staleness", "method"])
    assert len(error) == len(PLACES) * len(RATES)
    late = error.loc["spread", 2, "kae_eb"]
    assert late[["value_mse", "value_to_fresh", "value_to_rloo"]].tolist() == [4.0, 2.0, 0.4]
    assert error.loc["together", 0, "kae_eb"].isna().sum() == 6  # nothing is relative to itself
    alone = made["waiting"].set_index("method").loc["rloo"]
    assert alone[["arrival", "staleness", "gradient_to_waiting", "gradient_to_rloo_waiting"]].tolist() == [
        "singly", 2, 0.5, 0.25
    ]  # fmt: skip
    assert made["contrasts"]["reweighted_ratio"].tolist() == [3.0] * 3
    assert made["settings"]["lateness"].tolist() == [0, 2, 2]


def test_what_is_kept_of_the_results_follows_from_their_tables(kept):
    found = pd.DataFrame(staleness.findings(kept))[["claim", "verdict", "evidence"]]
    pd.testing.assert_frame_equal(pd.read_csv(RESULTS / "findings.csv"), found)
    table = (RESULTS / "tables" / "staleness.md").read_text()
    assert table == markdown(staleness.shown(kept), staleness.CAPTION)


@pytest.mark.parametrize(
    ("table", "method", "column", "holds", "fails"),
    [
        ("errors", "kae_eb, by arrival", "value_to_rloo", 0.9, 1.1),
        ("contrasts", "arrival to version, kae_eb", "value_ratio", 1.1, 0.9),
        ("contrasts", "both sides to arrival", "gradient_ratio", 0.995, 0.98),
        ("contrasts", "both sides to arrival", "reweighted_ratio", 1.1, 0.9),
        ("contrasts", "now to then", "reweighted_ratio", 0.9, 1.1),
    ],
)
def test_verdicts_follow_the_numbers(kept, table, method, column, holds, fails):
    def verdicts(number):
        frame = kept[table]
        one = frame["method"] == method
        changed = frame.assign(**{column: frame[column].mask(one, number), f"{column}_mcse": 1e-3})
        return [finding.verdict for finding in staleness.findings(kept | {table: changed})]

    turned = [pair for pair in zip(verdicts(holds), verdicts(fails), strict=True) if pair[0] != pair[1]]
    assert turned == [(HOLDS, FAILS)]


def test_figure_is_drawn_from_the_results(kept):
    drawing = staleness.figure(kept)
    assert len(drawing.axes) == 2 * len(staleness.SPEEDS)
    assert render(drawing, "png").startswith(b"\x89PNG")
