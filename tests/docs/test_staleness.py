"""The numbers of "Does staleness hurt?" are those of the results that are kept.

That these are what the study gives is tested beside the study (`tests/simulations/studies/test_staleness.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from paper_figures.studies.staleness import read

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "studies" / "staleness"
PAGE = " ".join((ROOT / "docs" / "guide" / "staleness.md").read_text().split())
NUMBER = r"(\d+(?:\.\d+)?)"
ERROR = rf"{NUMBER} ± {NUMBER}"
THREE = rf"{ERROR}, {ERROR} and {ERROR} times"
BY_SPEED = rf"{ERROR} \(slow\), {ERROR} \(medium\) and {ERROR} times \(fast\)"
SPEEDS = ("slow", "medium", "fast")
ARRIVED, HANDED = "kae_eb, by arrival", "kae_eb"
Tables = dict[str, pd.DataFrame]


@pytest.fixture(scope="module")
def kept() -> Tables:
    return read(RESULTS)


def numbers(
    frame: pd.DataFrame,
    way: str,
    column: str,
    speeds: Iterable[str] = SPEEDS,
    *,
    arrival: str = "spread",
    late: int = 8,
    places: int = 2,
) -> list[str]:
    """A column with its error at each speed."""
    rows = frame.query("method == @way and arrival == @arrival and staleness == @late").set_index("speed")
    return [f"{rows.loc[speed, name]:.{places}f}" for speed in speeds for name in (column, f"{column}_mcse")]


def of_arrival(kept: Tables) -> list[str]:
    worst = kept["errors"].query("method == @ARRIVED and staleness > 0")["value_to_rloo"].max()
    return [*numbers(kept["errors"], ARRIVED, "value_to_fresh"), f"{worst:.2f}"]


def versions(kept: Tables) -> list[str]:
    late = kept["contrasts"].query("method == 'arrival to version, kae_eb' and staleness > 0")
    return [f"{late['value_ratio'].min():.2f}", f"{late['value_ratio'].max():.2f}"]


def handed_on(kept: Tables) -> list[str]:
    return numbers(kept["errors"], HANDED, "value_to_fresh")


def both_sides(kept: Tables) -> list[str]:
    return [
        *numbers(kept["contrasts"], "both sides to arrival", "value_ratio"),
        *numbers(kept["contrasts"], "both sides to version", "value_ratio"),
        *numbers(kept["contrasts"], "both sides to arrival", "gradient_ratio", places=3),
        *numbers(kept["contrasts"], "both sides to version", "gradient_ratio", places=3),
        *numbers(kept["contrasts"], "both sides to arrival", "reweighted_ratio", ["fast"], places=3),
    ]


def bias(kept: Tables) -> list[str]:
    frame = kept["settings"].query("arrival == 'together' and staleness == 8").set_index("speed")
    return [f"{100 * frame.loc[speed, 'bias_to_gradient']:.1f}" for speed in SPEEDS]


def gradients(kept: Tables) -> list[str]:
    errors, speeds = kept["errors"], SPEEDS[1:]
    return [
        *numbers(errors, "value then", "gradient_to_fresh", speeds, places=3),
        *numbers(errors, ARRIVED, "gradient_to_rloo", speeds, places=3),
    ]


def which_value(kept: Tables) -> list[str]:
    return numbers(kept["contrasts"], "now to then", "gradient_ratio", SPEEDS[1:], places=3)


def importance(kept: Tables) -> list[str]:
    names = ("importance to none, by arrival", "now to then")
    each = (numbers(kept["contrasts"], name, "reweighted_ratio", SPEEDS[1:], places=3) for name in names)
    return [part for found in each for part in found]


def waiting(kept: Tables) -> list[str]:
    late = kept["settings"].query("speed == 'medium' and staleness == 4").set_index("arrival")["lateness"]
    ratios = ("gradient_to_rloo_waiting", "gradient_to_waiting")
    each = (numbers(kept["waiting"], ARRIVED, ratio, arrival="singly", late=4, places=3) for ratio in ratios)
    return [f"{late['singly']:.1f}", f"{late['waiting']:.1f}", *(part for found in each for part in found)]


CLAIMS: list[tuple[str, Callable[[Tables], list[str]]]] = [
    (
        rf"value MSE is {ERROR} times .*? real run, {ERROR} at three times and {ERROR} at ten .*? than {NUMBER} of",
        of_arrival,
    ),
    (rf"by arrival had {NUMBER} to {NUMBER} times", versions),
    (rf"versions cost {BY_SPEED}", handed_on),
    (
        rf"both sides, has {BY_SPEED} .*? and {THREE} that of versions.*? leaves {THREE} that of .*?, and {THREE} that "
        rf"of versions.*? gradient has {ERROR} times",
        both_sides,
    ),
    (rf"squared bias is {NUMBER}, {NUMBER} and {NUMBER} % of", bias),
    (
        rf"delays leave {ERROR} \(medium\) and {ERROR} times \(fast\) .*? leaves {ERROR} and {ERROR} times RLOO",
        gradients,
    ),
    (rf"true value leaves {ERROR} \(medium\) and {ERROR} times \(fast\)", which_value),
    (rf"leaves {ERROR} and {ERROR} times the MSE of the reweighted .*? value {ERROR} and {ERROR} times", importance),
    (rf"late by {NUMBER} steps when .*? by {NUMBER} when .*? has {BY_SPEED} .*? and {THREE} its own", waiting),
]


@pytest.mark.parametrize(("pattern", "measured"), CLAIMS, ids=[measured.__name__ for _, measured in CLAIMS])
def test_every_number_that_the_page_tells_is_that_of_the_results(kept, pattern, measured):
    sentence = re.search(pattern, PAGE)
    assert sentence, "no such sentence"
    assert list(sentence.groups()) == measured(kept)


def test_what_the_page_says_without_numbers_holds_in_the_results(kept):
    """Versions are nowhere better than arrival, beyond two standard errors; verdicts are as the page has them."""
    ratio = kept["contrasts"].query("method == 'arrival to version, kae_eb' and arrival != 'together'")
    assert (ratio["value_ratio"] - 2 * ratio["value_ratio_mcse"] < 1).all()
    together = kept["errors"].query("method in [@ARRIVED, @HANDED] and arrival == 'together' and staleness > 0")
    assert np.allclose(together["value_to_fresh"], 1, rtol=1e-5)
    assert (ratio.query("speed != 'fast'")["gradient_ratio"] > 0.99).all()
    slow = kept["contrasts"].query("speed == 'slow' and method in ['now to then', 'importance to none, by arrival']")
    assert (slow["reweighted_ratio"] > 0.99).all()
    found = pd.read_csv(RESULTS / "findings.csv")["verdict"].tolist()
    assert found == [*["holds"] * 2, *["does not hold"] * 2, "holds", "undecided", "holds", "undecided", *["holds"] * 5]
