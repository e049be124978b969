"""The README and the pages that a reader begins with give one advice: which default, and when none of it is needed."""

import re
from pathlib import Path

import pytest

from kaestat.baselines.registry import DEFAULT_METHOD

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/index.md", "docs/choose.md", "docs/guide/train.md")


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_calls_the_default_is_the_default(page):
    text = " ".join((ROOT / page).read_text().replace("**", "").split())
    named = re.findall(r"\bthe default(?:,| is) \[?`(\w+)`", text, re.IGNORECASE)
    assert named and set(named) == {DEFAULT_METHOD}


@pytest.mark.parametrize("page", sorted((ROOT / "docs/frameworks").glob("*.md")), ids=lambda page: page.stem)
def test_what_a_trainer_s_page_says_to_paste_is_the_default(page):
    code = "\n".join(re.findall(r"^```.*?^```", page.read_text(), re.MULTILINE | re.DOTALL))
    assert not re.findall(r'AdvantageEstimator\("kae"\)|adv_estimator=kae\b|kaestat_method: "kae"', code)
