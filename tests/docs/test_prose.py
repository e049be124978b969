"""Pages, docstrings, messages and comments are free of the idioms that docs/style lists, which vale reads as well."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "docs/style/kaestat/Foreign.yml").read_text())
FOREIGN = re.compile(rf"\b(?:{'|'.join(RULES['tokens'])})\b", re.IGNORECASE)
PLACES = ("README.md", "docs", "examples", "kaestat", "simulations", "llm_experiments", "paper_figures", "benchmarks")


def files(place):
    found = [ROOT / place] if (ROOT / place).is_file() else sorted((ROOT / place).rglob("*"))
    return [path for path in found if path.suffix in (".md", ".py") and "__pycache__" not in path.parts]


def foreign(text):
    """Line number and words of each idiom, also of one that runs over the end of a line."""
    in_one_line = text.replace("\n", " ")
    return [(text.count("\n", 0, match.start()) + 1, match[0]) for match in FOREIGN.finditer(in_one_line)]


@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_written_in_the_idioms_of_another_language(place):
    found = [(path, *each) for path in files(place) for each in foreign(path.read_text())]
    assert not found, "\n".join(f"{path.relative_to(ROOT)}:{line}: {words}" for path, line, words in found)


def test_an_idiom_is_found_also_across_lines():
    assert foreign("a warning is\ntold of it") and not foreign("the warning says so")
