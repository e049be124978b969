"""Every line that installs kaestat can work as it stands: from a checkout or an archive, with extras that there are."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "notebooks").glob("*.md"),
]
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def faults(text: str) -> list[str]:
    """What pip lines install that an index would have to know kaestat for, or with extras that it has not."""
    lines = re.findall(r"pip install ((?:\\\n|[^\n`])+)", text)
    wrong = []
    for each in (each for line in lines for each in shlex.split(line.replace("\\\n", " "), comments=True)):
        name, _, extras = each.rstrip("]").partition("[")
        own = not each.startswith("-") and (name == "." or "kaestat" in name)
        if own and (not ("/" in name or name == ".") or not set(filter(None, extras.split(","))) <= EXTRAS):
            wrong.append(each)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_a_page_need_no_published_package(page):
    assert faults(page.read_text()) == []
