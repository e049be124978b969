"""The table of the law's inputs on the page of language models is what the committed results say."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "law" / "length"
COLUMNS = [("plain", "p"), ("plain", "rho"), ("adam", "rho"), ("plain", "between_within"), ("adam", "between_within")]


def shown(title: str) -> list[list[str]]:
    """Cells of the table on the page whose head begins with this."""
    text = (ROOT / "docs" / "guide" / "language-models.md").read_text()
    lines = text[text.index(title) :].splitlines()[2:]
    end = next((place for place, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:end]]


def agrees(cell: str, *values: float) -> None:
    """Each number of a cell is the value, to its digits."""
    numbers = [each for each in cell.replace("±", " ").replace("(", " ").replace(")", " ").split() if each != "to"]
    for number, value in zip(numbers, values, strict=True):
        digits = len(number.partition(".")[2])
        assert float(number) == pytest.approx(value, abs=0.51 * 10**-digits), (cell, values)


def test_inputs_of_the_law_by_length():
    found = pd.read_csv(RESULTS / "summary.csv").set_index(["cell", "step", "metric", "quantity"])
    rows = shown("| tokens | updates |")
    assert len(rows) >= 8
    for tokens, step, *cells in rows:
        for cell, (metric, quantity) in zip(cells, COLUMNS, strict=True):
            row = found.loc[(f"habits_0_{tokens}", int(step), metric, quantity)]
            agrees(cell, *([row["value"]] if quantity == "p" else [row["value"], row["se"]]))


def test_predicted_noise():
    found = pd.read_csv(RESULTS / "predictions.csv")
    found = found[(found["cell"] == "habits_0_64") & (found["step"] == 0)].set_index(["metric", "design"])
    names = {"none, rewards of ±1": "none_signed", "RLOO-4": "rloo_4"}
    for title, *cells in shown("| noise over GRPO-8's"):
        for cell, metric in zip(cells, ("plain", "adam"), strict=True):
            row = found.loc[(metric, names.get(title, title.replace(" ", "_")))]
            agrees(cell, row["ratio"], row["low"], row["high"])
