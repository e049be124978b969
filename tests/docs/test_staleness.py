"""The numbers of "Does staleness hurt?" are those of the results that are kept.

That these are what the study gives is tested beside the study (`tests/simulations/studies/test_staleness.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from paper_figures.studies.staleness import read

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "guide" / "staleness.md").read_text().split())
NUMBER = r"(\d+\.?\d*)"
ERROR = rf"{NUMBER} ± {NUMBER}"
Tables = dict[str, pd.DataFrame]


@pytest.fixture(scope="module")
def kept() -> Tables:
    return read(ROOT / "results" / "studies" / "staleness")


def one(frame: pd.DataFrame, way: str, speed: str, arrival: str, late: int, column: str, places: int = 2) -> list[str]:
    row = frame.set_index(["method", "speed", "arrival", "staleness"]).loc[(way, speed, arrival, late)]
    return [f"{row[column]:.{places}f}", f"{row[f'{column}_mcse']:.{places}f}"]


def at_eight_steps(kept: Tables) -> list[str]:
    errors = kept["errors"]
    found = [one(errors, "kae_eb, by arrival", speed, "spread", 8, "value_to_fresh") for speed in ("slow", "medium", "fast")]
    worst = errors[(errors["method"] == "kae_eb, by arrival") & (errors["staleness"] > 0)]["value_to_rloo"].max()
    return [*sum(found, []), f"{worst:.2f}"]


def versions(kept: Tables) -> list[str]:
    late = kept["contrasts"].query("arrival == 'spread' and staleness > 0").set_index("method")["value_ratio"]
    return [f"{end:.2f}" for ratios in (late.loc["arrival to kept longer"],) for end in (ratios.min(), ratios.max())]


def short_history(kept: Tables) -> list[str]:
    errors = kept["errors"]
    return [
        part
        for speed, arrival in (("medium", "together"), ("medium", "spread"), ("fast", "together"))
        for part in one(errors, "kae_eb", speed, arrival, 8, "value_to_fresh")
    ]


def longer_history(kept: Tables) -> list[str]:
    return [
        part
        for speed in ("slow", "medium", "fast")
        for part in one(kept["errors"], "kae_eb, kept longer", speed, "spread", 8, "value_to_fresh")
    ]


def both_sides(kept: Tables) -> list[str]:
    return [
        part
        for speed in ("slow", "medium", "fast")
        for part in one(kept["contrasts"], "both sides to arrival", speed, "spread", 8, "value_ratio")
    ]


def bias(kept: Tables) -> list[str]:
    frame = kept["settings"].query("arrival == 'together' and staleness == 8").set_index("speed")
    return [f"{100 * frame.loc[speed, 'bias_to_gradient']:.1f}" for speed in ("slow", "medium", "fast")]


def gradients(kept: Tables) -> list[str]:
    """What staleness adds to the gradient whose baseline is the true value, and what a better baseline is worth."""
    errors = kept["errors"]
    return [
        *one(errors, "value then", "medium", "spread", 8, "gradient_to_fresh"),
        *one(errors, "value then", "fast", "spread", 8, "gradient_to_fresh"),
        *one(errors, "kae_eb, by arrival", "medium", "spread", 8, "gradient_to_rloo", 3),
        *one(errors, "kae_eb, by arrival", "fast", "spread", 8, "gradient_to_rloo", 3),
    ]


def importance(kept: Tables) -> list[str]:
    pairs = kept["contrasts"]
    found = [
        one(pairs, name, speed, "spread", 8, "reweighted_ratio", 3)
        for name in ("importance to none, by arrival", "now to then")
        for speed in ("slow", "medium", "fast")
    ]
    return sum(found, [])


def which_value(kept: Tables) -> list[str]:
    return [
        part
        for speed in ("medium", "fast")
        for part in one(kept["contrasts"], "now to then", speed, "spread", 8, "gradient_ratio", 3)
    ]


def waiting(kept: Tables) -> list[str]:
    late = kept["settings"].query("speed == 'medium' and staleness == 4").set_index("arrival")["lateness"]
    alone = kept["waiting"]
    ratios = [
        one(alone, "kae_eb, by arrival", speed, "singly", 4, column, 3)
        for column in ("gradient_to_rloo_waiting", "gradient_to_waiting")
        for speed in ("slow", "medium", "fast")
    ]
    return [f"{late['singly']:.1f}", f"{late['waiting']:.1f}", *sum(ratios, [])]
