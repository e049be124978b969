"""The patches offered to trainers are whole, change what their pages say, and apply to the trainers' source."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.helpers.upstream import checkout

FOLDER = Path(__file__).parents[2] / "docs/frameworks/upstream"
HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


def changed_lines(patch):
    """Added and removed lines of each file of a unified diff, whose hunks must have the lengths that they declare."""
    counts, old, new, path = {}, 0, 0, None
    for line in patch.splitlines():
        if old > 0 or new > 0:
            added, removed = line.startswith("+"), line.startswith("-")
            assert added or removed or line.startswith(" "), f"{path}: a hunk ends early, at {line!r}"
            old, new = old - (not added), new - (not removed)
            counts[path] = counts[path][0] + added, counts[path][1] + removed
        elif line.startswith("+++ "):
            path = line.removeprefix("+++ b/")
            counts[path] = 0, 0
        elif line.startswith("@@"):
            old, new = (int(count or 1) for count in HUNK.match(line).groups())
        else:
            assert line.startswith(("diff --git ", "index ", "new file mode ", "--- ")), f"{path}: stray {line!r}"
    assert old == new == 0, f"{path}: the last hunk ends early"
    return counts


def said_lines(page):
    """The rows of a page's table of files."""
    return {path: (int(a), int(r)) for path, a, r in re.findall(r"^\| `(\S+\.py)` \| (\d+) \| (\d+) \|", page, re.M)}


@pytest.mark.parametrize("trainer", ["trl", "verl"])
def test_a_patch_changes_the_files_and_lines_that_its_page_says(trainer):
    counts = changed_lines((FOLDER / f"{trainer}.patch").read_text())
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
