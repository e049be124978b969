"""What a table of few runs says follows from their curves, also where some were cut off."""

import pandas as pd
import pytest

from paper_figures.policies.rate_runs import chosen, rate_runs_caption, rate_runs_figure, rate_runs_table

NAMES = {"slow": "Slow", "quick": "Quick", "cut": "Cut"}


def line(design, rate, seed, slope, end=400):
    return [(design, rate, seed, at, min(slope * at / 400, 0.9)) for at in range(0, end + 1, 100)]


@pytest.fixture
def curves():
    rows = [
        *line("slow", 1e-3, 0, 0.4),
        *line("slow", 1e-3, 1, 0.4),
        *line("slow", 1e-2, 0, 0.1),
        *line("slow", 1e-2, 1, 0.1),
        *line("quick", 1e-3, 0, 0.7),
        *line("quick", 1e-3, 1, 0.9),
        *line("cut", 1e-3, 0, 0.8, end=200),
        *line("cut", 1e-3, 1, 0.8, end=200),
    ]
    return pd.DataFrame(rows, columns=["design", "rate", "seed", "generated", "matched"])


def test_each_design_is_taken_at_its_best_rate(curves):
    assert chosen(curves).groupby("design")["rate"].unique().map(list).to_dict() == {
        "slow": [1e-3],
        "quick": [1e-3],
        "cut": [1e-3],
    }


def test_the_table_is_over_what_all_runs_have_in_common(curves):
    table = rate_runs_table(curves, "slow", "cut", NAMES).set_index("Design")
    # Straight lines: the mean over the first half is a quarter of where they would end.
    assert table["Mean accuracy"].to_dict() == {"Slow": "0.100", "Quick": "0.200", "Cut": "0.200"}
    assert table["less Slow"].to_dict() == {"Slow": "", "Quick": "+0.100 ± 0.025", "Cut": "+0.100 ± 0.000"}
    assert table["Completions"].to_dict() == {
        "Slow": "1.00 (1.00 / 1.00)",
        "Quick": "0.50 (0.57 / 0.44)",
        "Cut": "0.50 (0.50 / 0.50)",
    }
    assert table["After 400"].to_dict() == {"Slow": "0.400", "Quick": "0.800", "Cut": "cut off"}


def test_caption_and_figure_name_what_is_shown(curves):
    assert rate_runs_caption(curves, "slow", NAMES).startswith("2 runs of each design on one base model")
    assert "first 200 completions" in rate_runs_caption(curves, "slow", NAMES)
    (axes,) = rate_runs_figure(curves, NAMES).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(NAMES.values())
