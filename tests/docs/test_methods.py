"""Every method and every bandwidth selector has its page or section, and the facts there are the code's."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from kaestat import Groups, Visits
from kaestat.baselines import ClusterBlend, Critic, Oracle
from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import METHODS, make_baseline
from kaestat.estimator.scaling import DEVIATION
from kaestat.smoothing.selectors import SELECTORS

PAGES = Path(__file__).parents[2] / "docs" / "methods"
FILES = {"reinforce++": "reinforce_plus_plus"}
SECTIONS = ("Formula", "Assumptions", "When it fails", "Against ", "Example")
FIGURE = "Where it errs, and where it wins"  # tests/docs/test_method_figures.py
ADVANTAGES = {
    "none": "as it is",
    "group_std": "over the group's standard deviation",
    "batch_std": "whitened over the batch",
    "informative": "times B / (B - M)",
}
DEVIATIONS = {
    "bnpo": "over the Beta density at the group's mean",
    "krpo": "over the filter's standard deviation",
    "maxrl": "over the group's mean",
    "mc_grpo": "over the group's median absolute deviation",
}
COLUMNS = ("looks back", "own reward", "weights", "advantage", "class")


def page(name: str) -> str:
    return (PAGES / f"{FILES.get(name, name)}.md").read_text()


def facts(name: str) -> dict[str, str]:
    """The one row of the page's first table."""
    header, row = re.search(r"^\|(.*)\|\n\|[-|]+\|\n\|(.*)\|$", page(name), re.MULTILINE).groups()
    return dict(zip((cell.strip() for cell in header.split("|")), map(str.strip, row.split("|")), strict=True))


def baseline_of(name: str) -> Baseline:
    given = {
        "oracle": {"value": np.full(2, 0.5)},
        "remax": {"greedy": np.ones(2)},
        "cluster_blend": {"clusters": {"a": 0, "b": 1}},
        "outside_value": {"outside": np.full(2, 0.5)},
        "critic": {"features": {"a": [0.0], "b": [1.0]}},
    }
    return make_baseline(name, **given.get(name, {}))


def looks_back(baseline: Baseline) -> str:
    if isinstance(baseline, Critic | ClusterBlend) or baseline.initial_carry() is not None:
        return "the whole run"
    horizon = baseline.horizon
    return "no" if horizon == 0 else "all visits" if horizon == math.inf else f"{horizon:g} steps"


def sees_own(baseline: Baseline) -> bool:
    groups = Groups(np.array([[1.0, 0.0], [1.0, 1.0]]), prompt_ids=["a", "b"])
    return bool(np.any(np.asarray(baseline.own_derivative(groups, Visits.empty(groups), step=0)) != 0))


def test_table_of_methods_says_which_take_any_order():
    rows = re.findall(r"^\| \[`(.+?)`\]\(.*\|([^|]*)\|$", (PAGES / "index.md").read_text(), re.MULTILINE)
    told = {name: order.strip() for name, order in rows}
    assert set(told) == set(METHODS)
    for name, order in told.items():
        assert order == ("strict" if baseline_of(name).in_order_only else "any") or name == "spo"
    assert told["spo"] == "any, with a constant `rho`"
    assert make_baseline("spo").in_order_only and not make_baseline("spo", rho=0.9).in_order_only


@pytest.mark.parametrize("name", METHODS)
def test_page_of_a_method_has_its_facts(name):
    method, baseline = METHODS[name], baseline_of(name)
    advantage = DEVIATIONS[name] if method.scale == DEVIATION else ADVANTAGES[method.scale]
    path = f"{method.baseline.__module__}.{method.baseline.__name__}"
    expected = {
        "looks back": looks_back(baseline),
        "own reward": "included" if sees_own(baseline) else "left out",
        "weights": "yes" if baseline.takes_weights else "no",
        "advantage": advantage,
        "class": f"[`{method.baseline.__name__}`][{path}]",
    }
    assert facts(name) == expected


@pytest.mark.parametrize("name", METHODS)
def test_page_of_a_method_says_formula_source_assumptions_failures_differences_and_an_example(name):
    text = page(name)
    assert text.startswith(f"# `{name}`: ")
    headings = [each for each in re.findall(r"^## (.*)$", text, re.MULTILINE) if each != FIGURE]
    assert [heading.startswith(start) for heading, start in zip(headings, SECTIONS, strict=True)] == [True] * 5
    assert re.search(r"\\\[.*?\\\]", text, re.DOTALL), "no formula"
    assert re.search(r"^Sources?: ", text, re.MULTILINE), "no source"
    assert f'AdvantageEstimator("{name}"' in text or isinstance(baseline_of(name), Oracle)


def test_index_lists_every_method_once_and_no_other_page_stands_there():
    listed = re.findall(r"^\| \[`(.*?)`\]\((.*?)\.md\) \|", (PAGES / "index.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted((name, FILES.get(name, name)) for name in METHODS)
    assert {path.stem for path in PAGES.glob("*.md")} == {file for _, file in listed} | {"index", "bandwidth-selectors"}


def test_every_selector_has_a_section_and_a_row():
    text = (PAGES / "bandwidth-selectors.md").read_text()
    assert re.findall(r"^## `(.*)`$", text, re.MULTILINE) == list(SELECTORS)
    assert sorted(re.findall(r"^\| `(\w+)`", text, re.MULTILINE)) == sorted(SELECTORS)
