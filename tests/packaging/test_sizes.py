"""The size of the house: lines of Python of each part, which a change may not exceed without a reason in its commit."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_LINES = {
    "kaestat": 23_000,
    "llm_experiments": 12_000,
    "paper_figures": 3_930,
    "simulations": 3_400,
    "benchmarks": 600,
    "tests": 31_450,
}


@pytest.mark.parametrize("folder", MOST_LINES)
def test_a_part_of_the_house_stays_within_its_size(folder):
    lines = sum(len(path.read_text().splitlines()) for path in (ROOT / folder).rglob("*.py"))
    assert lines <= MOST_LINES[folder], "delete as much as you add"
