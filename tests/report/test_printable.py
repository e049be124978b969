"""Names from files reach the terminal as text: nothing in them is obeyed."""

import json
import re

import pytest

from kaestat.report.cli import run
from kaestat.report.printable import printable

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\r"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", r"\x1b[31m"),
        ("\x9b31m", r"\x9b31m"),
        ("\udcff", r"\udcff"),
        ("été, 数学\ttab\nline 😀", "été, 数学\ttab\nline 😀"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped_and_nothing_else_changes(text, shown):
    assert printable(text) == shown
    assert printable(shown) == shown


def obeyed(printed):
    """What of the output a terminal obeys."""
    return re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", printed)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / f"run{HOSTILE}.csv"
    rows = "".join(f'"p{k % 5}{HOSTILE}",{k // 20},{k % 3 % 2}\n' for k in range(200))
    path.write_text("prompt,step,reward\n" + rows, newline="")
    return path


@pytest.mark.parametrize(
    "command",
    [
        ["analyze", "--n-boot", "40"],
        ["analyze", "--n-boot", "40", "--json"],
        ["bandwidth"],
        ["watch", "--once", "--n-boot", "40"],
    ],
)
def test_names_of_files_and_prompts_in_what_commands_print(log, capsys, command):
    status = run([command[0], str(log), *command[1:]])
    printed, told = capsys.readouterr()
    assert status == 0, told
    assert printed and not obeyed(printed + told)


@pytest.mark.parametrize("command", [["analyze", "--n-boot", "40"], ["compare"], ["watch", "--once"]])
def test_names_of_files_and_prompts_in_reports(log, tmp_path, command):
    other = [str(log)] if command == ["compare"] else []
    assert run([command[0], str(log), *other, *command[1:], "--out", str(tmp_path / "out")]) == 0
    written = [path for path in (tmp_path / "out").iterdir() if path.suffix not in (".png", ".pdf")]
    assert written and not any(obeyed(path.read_text(encoding="utf-8")) for path in written)


@pytest.mark.filterwarnings("default::kaestat.logs.columns.LogWarning")
def test_names_of_files_in_warnings(tmp_path, capsys):
    """Python's own form of a warning has the path as it is, and a line of our source."""
    folder = tmp_path / f"run{HOSTILE}"
    folder.mkdir()
    for step in range(3):
        rows = [{"input": "a", "output": "", "score": score, "step": step} for score in (1, 0, None)]
        (folder / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["analyze", str(folder), "--n-boot", "40"]) == 0
    printed, told = capsys.readouterr()
    assert not obeyed(printed + told)
    (line,) = told.splitlines()
    assert line.startswith("kaestat: warning: ") and line.endswith(
        "3 of 9 rows left out for lack of score (the first: 0.jsonl, line 3)."
    )
