"""The patches offered to trainers are whole, change what their pages say, and apply to the trainers' source."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.helpers.upstream import checkout

FOLDER = Path(__file__).parents[2] / "docs/frameworks/upstream"


def changed_lines(trainer):
    """Added and removed lines of each file of a patch, which git refuses if a hunk is not whole."""
    command = ["git", "apply", "--numstat", str(FOLDER / f"{trainer}.patch")]
    said = subprocess.run(command, cwd=FOLDER.parents[2], capture_output=True, text=True, check=True).stdout
    return {path: (int(added), int(removed)) for added, removed, path in map(str.split, said.splitlines())}


def said_lines(page):
    """The rows of a page's table of files."""
    return {path: (int(a), int(r)) for path, a, r in re.findall(r"^\| `(\S+\.py)` \| (\d+) \| (\d+) \|", page, re.M)}


@pytest.mark.parametrize("trainer", ["trl", "verl"])
def test_a_patch_changes_the_files_and_lines_that_its_page_says(trainer):
    counts = changed_lines(trainer)
    assert counts == said_lines((FOLDER / f"{trainer}.md").read_text())
    assert any(path.startswith("tests/") for path in counts), "no test comes with it"
    assert sum(added for path, (added, _) in counts.items() if not path.startswith("tests/")) <= 50


@pytest.mark.parametrize("trainer", ["trl", "verl"])
def test_a_patch_applies_to_the_trainers_source(trainer):
    root = checkout(trainer)
    if root is None:
        pytest.skip(f"KAESTAT_UPSTREAM names no folder with a checkout of {trainer}")
    outside = os.environ | {"GIT_CEILING_DIRECTORIES": str(root.resolve().parent)}  # an unpacked archive has no .git
    check = ["git", "apply", "--check", str(FOLDER / f"{trainer}.patch")]
    done = subprocess.run(check, cwd=root, env=outside, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
