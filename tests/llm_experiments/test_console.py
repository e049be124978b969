"""Progress where there is no terminal."""

import io

from rich.console import Console

from llm_experiments import console
from llm_experiments.console import timed_progress


def test_output_to_a_file_has_a_line_a_minute_and_ends_each_part_with_its_time(monkeypatch):
    clock = iter([0.0, 20.0, 61.0, 61.0, 100.0, 122.0, 122.0, 130.0])
    monkeypatch.setattr(console.time, "perf_counter", lambda: next(clock))
    file = io.StringIO()
    with timed_progress(Console(file=file), "pools [a]", 5) as done:
        for _ in range(4):
            done()
    lines = file.getvalue().splitlines()
    assert lines[:2] == ["pools [a]: 2/5", "pools [a]: 4/5"] and lines[2].split() == ["pools", "[a]", "130.0", "s"]
