"""Progress where there is no terminal."""

import io

from rich.console import Console

from llm_experiments.console import MinuteLines, timed_progress


def lines_of(total: int, found: int, seconds: float, n: int) -> list[str]:
    """Lines of a part of which ``found`` units were there, and ``n`` more take ``seconds`` each."""
    now, said = [0.0], []
    lines = MinuteLines(said.append, "kae (steps)", total, clock=lambda: now[0])
    for _ in range(found):
        lines.advance()
    for _ in range(n):
        now[0] += seconds
        lines.advance()
    return said


def test_a_line_a_minute_has_the_rate_and_the_time_left():
    assert lines_of(total=200, found=0, seconds=20, n=6) == [
        "kae (steps): 3/200, 3.0/min, 1:05:40 left",
        "kae (steps): 6/200, 3.0/min, 1:04:40 left",
    ]
    assert lines_of(total=0, found=0, seconds=1, n=90) == ["kae (steps): 60, 1.0/s"]


def test_what_an_earlier_call_has_left_does_not_count_for_the_rate():
    assert lines_of(total=200, found=100, seconds=60, n=1) == ["kae (steps): 101/200, 1.0/min, 1:39:00 left"]


def test_slow_units_have_a_line_each_and_quick_parts_none():
    assert len(lines_of(total=10, found=0, seconds=300, n=4)) == 4
    assert lines_of(total=10, found=0, seconds=1, n=10) == []


def test_output_to_a_file_ends_each_part_with_its_time():
    file = io.StringIO()
    with timed_progress(Console(file=file), "pools [a]", 2) as done:
        done()
        done()
    assert file.getvalue().split()[:2] == ["pools", "[a]"] and file.getvalue().count("\n") == 1
