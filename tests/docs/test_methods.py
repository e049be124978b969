"""Every method and policy has its page or row, and the facts there are the code's."""

import re
from pathlib import Path

import pytest

from kaestat.baselines.registry import METHODS
from kaestat.sampling.policies import POLICIES
from tests.helpers.hooks import hook

DOCS = Path(__file__).parents[2] / "docs"
PAGES = DOCS / "methods"
SECTIONS = ("Formula", "Assumptions", "When it fails", "Against ", "Example")


def page(name: str) -> str:
    return re.sub(r"^{%.*%}\n", "", (PAGES / f"{METHODS[name].page}.md").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_its_facts_on_its_page_and_its_row(name):
    tables, method = hook("tables"), METHODS[name]
    facts = tables.facts_of(method)
    assert all(facts.values())
    shown = tables.with_facts(page(name), method)
    assert shown.count("\n| " + " | ".join(facts.values()) + " |\n\n## Formula") == 1
    assert (
        tables.filled((PAGES / "index.md").read_text()).count(f"\n| [`{name}`]({method.page}.md) | {method.summary}")
        == 1
    )


def test_every_policy_has_its_row_on_both_pages():
    pages = [hook("tables").filled((DOCS / "sampling" / name).read_text()) for name in ("index.md", "policies.md")]
    for name, policy in POLICIES.items():
        assert policy.summary and f"| [`{name}`](policies.md) | {policy.summary} |" in pages[0]
        assert f"\n| `{name}` | " in pages[1]


@pytest.mark.parametrize("name", METHODS)
def test_page_of_a_method_says_formula_source_assumptions_failures_differences_and_an_example(name):
    text = page(name)
    assert text.startswith(f"# `{name}`: ")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert [heading.startswith(start) for heading, start in zip(headings, SECTIONS, strict=True)] == [True] * 5
    assert re.search(r"\\\[.*?\\\]", text, re.DOTALL), "no formula"
    assert re.search(r"^Sources?: ", text, re.MULTILINE), "no source"
    assert f'AdvantageEstimator("{name}"' in text or name == "oracle"
