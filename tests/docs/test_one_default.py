"""The README and the pages that a reader begins with give one advice: which default, and when none of it is needed."""

import re
from pathlib import Path

import pytest

from kaestat.baselines.registry import DEFAULT_METHOD, METHODS

ROOT = Path(__file__).parents[2]
NO_RETURN = ["rloo", "james_stein"]
PAGES = ("README.md", "docs/index.md", "docs/choose.md", "docs/guide/train.md")


def text(page):
    return " ".join((ROOT / page).read_text().replace("**", "").split())


def methods_after(page, opening):
    """Methods that the page names after words that it has once, in order."""
    assert text(page).count(opening) == 1, f"{page}: once {opening!r}"
    after = text(page).split(opening)[1]
    return [name for name in re.findall(r"`([\w+]+)`", after) if name in METHODS]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_calls_the_default_is_the_default(page):
    named = re.findall(r"\bthe default(?:,| is) \[?`(\w+)`", text(page), re.IGNORECASE)
    assert named and set(named) == {DEFAULT_METHOD}


@pytest.mark.parametrize(
    ("page", "opening"),
    [
        ("README.md", "Yes, every few steps"),
        ("docs/index.md", "Where prompts come back"),
        ("docs/choose.md", "Prompts come back (several"),
        ("docs/guide/train.md", "Where prompts come back"),
    ],
)
def test_the_first_advice_where_prompts_come_back_is_the_default(page, opening):
    assert methods_after(page, opening)[0] == DEFAULT_METHOD


@pytest.mark.parametrize("page", ["docs/index.md", "docs/guide/train.md"])
def test_the_first_estimator_of_a_page_is_the_default(page):
    assert re.search(r"= AdvantageEstimator\((.*?)\)", (ROOT / page).read_text())[1] == ""


@pytest.mark.parametrize(
    ("page", "opening"), [("README.md", "| Never |"), ("docs/choose.md", "Prompts never come back.")]
)
def test_where_prompts_never_come_back_the_advice_is_one(page, opening):
    assert methods_after(page, opening)[:2] == NO_RETURN


def test_the_number_of_completions_from_which_the_group_mean_suffices_is_one():
    said = [re.findall(r"(\d+) or more completions per prompt", text(page)) for page in PAGES]
    assert [number for numbers in said for number in numbers] == ["32", "32"]


@pytest.mark.parametrize("page", sorted((ROOT / "docs/frameworks").glob("*.md")), ids=lambda page: page.stem)
def test_what_a_trainer_s_page_says_to_paste_is_the_default(page):
    code = "\n".join(re.findall(r"^```.*?^```", page.read_text(), re.MULTILINE | re.DOTALL))
    assert not re.findall(r'AdvantageEstimator\("kae"\)|adv_estimator=kae\b|kaestat_method: "kae"', code)
