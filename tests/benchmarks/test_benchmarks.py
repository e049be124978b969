"""Every benchmark runs at its smallest size and returns rows that a reader can trust; no time is asserted."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import BENCHMARKS
from benchmarks.measure import measure
from benchmarks.report import write
from benchmarks.rows import Row
from benchmarks.timing import Estimate, estimate, interleaved

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """What ``python -m benchmarks --tiny`` writes, read back."""
    folder = tmp_path_factory.mktemp("tables")
    environment = {name: value for name, value in os.environ.items() if name != "KAESTAT_DATA"}
    command = [sys.executable, "-m", "benchmarks", "--tiny", "--out", str(folder)]
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return json.loads((folder / "results.json").read_text())


def check(benchmark):
    """A benchmark's part of the tables: measured, or said why not."""
    assert benchmark["claim"]
    assert any(row["at_most"] is not None for row in benchmark["rows"]), "no row carries the claim"
    for row in benchmark["rows"]:
        assert row["case"] and row["quantity"] and row["unit"]
        if row["value"] is None:
            assert "not measured" in row["note"]
        else:
            assert all(math.isfinite(number) for number in row["value"].values())
            assert row["value"]["low"] <= row["value"]["median"] <= row["value"]["high"]


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmark_returns_rows_that_are_measured_or_say_why_not(name, tables):
    check(tables["benchmarks"][name])


def test_a_benchmark_alone_returns_rows_that_are_measured(tmp_path):
    write(tmp_path, {"state_file": measure("state_file", "tiny")}, {})
    check(json.loads((tmp_path / "results.json").read_text())["benchmarks"]["state_file"])


@pytest.mark.slow
def test_whole_table_says_where_it_comes_from(tables):
    assert {"date", "commit", "processor", "cores", "Python", "numpy"} <= set(tables["provenance"])


def test_interleaved_calls_every_piece_in_turn_and_turns_the_order_round():
    calls = []
    seconds = interleaved({name: lambda name=name: calls.append(name) for name in "abc"}, repetitions=2)
    assert "".join(calls) == "abc" + "abc" + "cba"
    assert {name: sample.shape for name, sample in seconds.items()} == dict.fromkeys("abc", (2,))
    assert all((sample >= 0).all() for sample in seconds.values())


def test_interval_of_the_median_has_the_order_statistics_of_the_binomial_and_that_of_few_samples_is_their_range():
    # n = 20: P(Bin(20, 1/2) <= 5) = .0207 <= .025 < P(<= 6) = .0577, so the 6th and the 15th smallest.
    assert estimate(np.arange(1.0, 21.0)[::-1]) == Estimate(10.5, 6.0, 15.0)
    assert estimate(np.array([3.0, 1.0, 2.0])) == Estimate(2.0, 1.0, 3.0)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, None),
        ({"at_most": 2.0}, True),
        ({"at_most": 1.9}, False),
    ],
)
def test_bound_is_judged_by_the_median(limits, expected):
    assert Row("case", "quantity", "ratio", Estimate(2.0, 1.0, 3.0), **limits).holds is expected


def test_written_tables_hold_every_row_and_their_origin(tmp_path):
    rows = [Row("case", "quantity", "ms", Estimate(2.0, 1.0, 3.0), at_most=1.5)]
    write(tmp_path, {"some_script": ("A claim", rows)}, {"cores": "2"})
    plain = json.loads((tmp_path / "results.json").read_text())
    (row,) = plain["benchmarks"]["some_script"]["rows"]
    assert plain["provenance"] == {"cores": "2"}
    assert row["value"] == {"median": 2.0, "low": 1.0, "high": 3.0} and row["holds"] is False
    table = (tmp_path / "results.md").read_text()
    assert "| case | quantity | ms | 2 | 1 – 3 | ≤ 1.5 | **no** |" in table and "cores 2" in table
