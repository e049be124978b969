"""Tables of the law's inputs on pages are what the committed results say."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "law" / "length"
COLUMNS = [("plain", "p"), ("plain", "rho"), ("adam", "rho"), ("plain", "between_within"), ("adam", "between_within")]


SMOLLM2 = ROOT / "results" / "law" / "smollm2"
HISTORY = ROOT / "docs" / "experiments" / "what_a_history_buys.md"
CELLS = {"own answers": "free", "taught solutions": "taught"}
DESIGNS = {"none, rewards of ±1": "none_signed"}


def shown(title: str, page: Path = ROOT / "docs" / "guide" / "language-models.md") -> list[list[str]]:
    """Cells of the table on the page whose head begins with this."""
    text = page.read_text()
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


def test_inputs_of_the_law_of_smollm2():
    found = pd.read_csv(SMOLLM2 / "summary.csv").set_index(["cell", "step", "metric", "quantity"])
    rows = shown("| SmolLM2-135M | tokens |", HISTORY)
    measured = found.index.droplevel(["metric", "quantity"]).drop_duplicates()
    assert [(CELLS[name], int(step)) for name, _, step, *_ in rows] == list(measured)
    for name, tokens, step, *cells in rows:
        own = found.loc[(CELLS[name], int(step))]
        agrees(tokens, own.loc[("plain", "length"), "value"])
        for cell, key in zip(cells, COLUMNS, strict=True):
            agrees(cell, *([own.loc[key, "value"]] if key[1] == "p" else own.loc[key, ["value", "se"]]))
    text = " ".join(HISTORY.read_text().split())
    scale = found.loc[("free", 0, "adam", "noise_scale")].round(-3)
    assert f"The noise scale, {scale['value']:,.0f} completions in Adam's units before training" in text
    assert f"has a standard error of {round(scale['se'], -4):,.0f}, so" in text
    before, after = (found.loc[("free", step, "adam", "rho"), ["low", "high"]].round(1) for step in (0, 4))
    told = f"{before['low']} to {before['high']} before the updates and {after['low']} to {after['high']} after them"
    assert told.replace("0.", ".") in text
    between = found.xs("between_within", level="quantity")["value"]
    assert f"between/within is at most {between.max():.2f}".replace("0.", ".") in text
    completions = pd.read_csv(SMOLLM2 / "completions.csv.gz").query("cell == 'taught'")
    assert f"The taught solutions have {completions['reward'].sum():.0f} right completions in all" in text
    assert completions["length"].between(57, 69).all() and completions["reward"].mean() == 1 / 8


def test_predicted_noise_of_smollm2():
    found = pd.read_csv(SMOLLM2 / "predictions.csv").set_index(["metric", "cell", "step", "design"]).loc["adam"]
    places = found.index.droplevel("design").drop_duplicates()
    rows = shown("| noise over GRPO-8's, in Adam's units |", HISTORY)
    assert len(rows) >= 8
    for title, *cells in rows:
        design = DESIGNS.get(title, title.replace("GRPO-", "grpo_").replace(" ", "_"))
        for cell, place in zip(cells, places, strict=True):
            agrees(cell, *found.loc[(*place, design), ["ratio", "low", "high"]])
    own = [found.loc[place] for place in places]
    assert len(own) == 3 and all(each["rank"].idxmin() == "weighted_history" for each in own)
    ratios = [f"{each.loc['weighted_history', 'ratio']:.2f}".replace("0.", ".") for each in own]
    assert f"with {ratios[0]}, {ratios[1]} and {ratios[2]} of GRPO-8's noise" in " ".join(HISTORY.read_text().split())
    for each in own:
        assert each.loc["weighted_history", "high"] > each.loc["weighted_batch_mean", "low"]  # not told apart
        assert 3 / 4 < each.loc["grpo_16", "ratio"] < 5 / 4 and 1.5 <= each.loc["grpo_2", "ratio"] < 1.9
    assert all(each.loc["none", "low"] < 1 < each.loc["none", "high"] for each in own[:2])
    assert own[2].loc["none", "high"] < 1


def test_what_is_said_of_the_law_in_workings():
    folder, text = ROOT / "results" / "law" / "workings", " ".join(HISTORY.read_text().split())
    found = pd.read_csv(folder / "summary.csv").set_index(["step", "metric", "quantity"])
    rho, between = (found.loc[(0, "adam", name)] for name in ("rho", "between_within"))
    told = f"ρ in Adam's units is {rho['value']:.2f} ± {rho['se']:.2f} and between/within {between['value']:.3f} ±"
    assert f"{told} {between['se']:.3f}".replace("0.", ".") in text
    predicted = pd.read_csv(folder / "predictions.csv").set_index(["metric", "design", "step"]).loc["adam"]
    needed = predicted["completions"].div(predicted.loc["grpo_8", "completions"], level="step")
    history, none = needed.loc[("history", 0)], needed.loc[("none", 0)]
    assert f"needs {history:.2f} of GRPO-8's completions, and no".replace("0.", ".") in text
    assert f"no baseline {none:.2f} times as many" in text
    both = sorted(needed.loc["weighted_history"])
    assert f"with {both[0]:.2f} to {both[1]:.2f} of GRPO-8's completions".replace("0.", ".") in text
