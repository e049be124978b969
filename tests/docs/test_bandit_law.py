"""What the page on histories says of the bandits is what their committed tables say."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "baseline_law"
WRONG_MODE = ("habit", "many", "easy", "habit_rule")
SPREAD = ("real", "real_plain")


@pytest.fixture(scope="module")
def said():
    text = " ".join((ROOT / "docs" / "experiments" / "what_a_history_buys.md").read_text().split())
    return text[text.index("## Thirty-one cells") : text.index("## A made world, with")]


def by_world(table: pd.DataFrame) -> pd.DataFrame:
    parts = table["cell"].str.rsplit("_", n=2, expand=True)
    return table.assign(world=parts[0], optimiser=parts[1], batch=parts[2].astype(int))


@pytest.fixture(scope="module")
def contrasts():
    found = by_world(pd.read_csv(RESULTS / "contrasts.csv.gz"))
    found[["difference", "half"]] *= 100
    return found.set_index(["design", "other"]).sort_index()


def points(value: float) -> str:
    return f"{value:.1f}".replace("0.", ".", 1).replace("-", "−")


def test_order_and_size(said):
    found = pd.read_csv(RESULTS / "verdicts.csv")
    planned, held = found[~found["held_out"]], found[found["held_out"]]
    assert (len(planned), len(held)) == (23, 8)
    assert (planned["rank_correlation"] >= 0.8).all() and "at least .8 in all 23 cells of the plan" in said
    assert (held["rank_correlation"] >= 0.8).sum() == 7 and held["rank_correlation"].min().round(2) == 0.79
    counts = [(each["within_factor"] >= 6).sum() for each in (planned, held)]
    assert counts == [20, 6] and "in 20 of the 23 cells and in six of the eight" in said


def test_where_no_baseline_loses_and_wins(said, contrasts):
    own = contrasts.loc[("none", "batch_mean")]
    lost = own[own["world"].isin(WRONG_MODE)]
    assert len(lost) == 14 and (lost["p"] < 0.003).all() and "In all 14 such cells" in said
    span = f"{points(-lost['difference'].max())} to {points(-lost['difference'].min())} points"
    assert f"the batch mean is {span} of mean accuracy ahead of it (p < .003 in each)" in said
    won = own[own["difference"] > 0]
    assert set(won["cell"]) == {"heavy_sgd_64", "heavy_adamw_64", "heavy_muon_64", "loud_sgd_64"}
    span = f"{points(won['difference'].min())} to {points(won['difference'].max())} points"
    assert f"No baseline wins, by {span}, in the four cells whose ρ is above the line" in said
    inputs = pd.read_csv(RESULTS / "inputs.csv").groupby("cell")[["value", "ratio"]].mean()
    above = inputs["ratio"] > 1 + 1 / (1 - inputs["value"])
    assert set(inputs.index[above]) == set(won["cell"])


def test_histories_and_batches(said, contrasts):
    own = contrasts.loc[("weighted_history", "weighted_batch_mean")]
    small, middle, large = (own[own["batch"] == batch] for batch in (8, 64, 256))
    assert (len(small), len(middle), len(large)) == (4, 24, 3)
    low, high = points(small["difference"].min()), points(small["difference"].max())
    assert f"leads by {low} to {high} points of mean accuracy in all four cells (p < .04)" in said
    assert (small["p"] < 0.04).all() and (middle["p"] < 0.05).sum() == 5 and (large["p"] > 0.3).all()
    low, high = points(middle["difference"].min()), points(middle["difference"].max())
    assert f"At 64 it leads by {low} to {high} points; p is below .05, uncorrected, in five of 24 cells" in said


def test_what_the_law_overstates(said):
    found = by_world(pd.read_csv(RESULTS / "measured.csv.gz"))
    own = found[found["world"].isin(SPREAD)].pivot_table(
        index="cell", columns="design", values=["predicted", "completions"]
    )
    predicted, needed = (own[name]["history"] / own[name]["batch_mean"] for name in ("predicted", "completions"))
    assert len(own) == 7 and "In the seven cells where values are spread" in said
    spans = [f"{min(x):.2f} to {max(x):.2f}".replace("0.", ".") for x in (predicted, needed)]
    assert f"needs {spans[0]} of the batch mean's completions. It needed {spans[1]}." in said
