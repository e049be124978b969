"""No committed table of benchmarks is further behind the code it times than a release."""

import ast
import json
from pathlib import Path

import pytest

from kaestat.core.provenance import git

ROOT = Path(__file__).parents[2]
MOST = 50  # commits to the code that a benchmark times
TABLES = [
    (path, name)
    for path in [ROOT / "benchmarks" / "results.json"]
    for name in json.loads(path.read_text())["benchmarks"]
]


def code_of(benchmark):
    """``CODE`` of its script, which is not imported: some need torch."""
    script = ast.parse((ROOT / "benchmarks" / f"{benchmark}.py").read_text())
    assigned = (node for node in script.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CODE")
    return ast.literal_eval(next(assigned).value)


@pytest.fixture(scope="module")
def has_history():
    """Whether commits can be counted; not in an archive, nor in a checkout of the newest commits alone."""
    if (top := git(ROOT, "rev-parse", "--show-toplevel")) is None or Path(top).resolve() != ROOT.resolve():
        pytest.skip("this is no git checkout, so that no commits can be counted")
    if git(ROOT, "rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("this is a shallow checkout, so that no commits can be counted")


def touching(code, log):
    """How many commits of ``git log --name-status`` (newest first) touch a path in ``code``, by the names of today."""
    today, count = {}, 0
    for commit in log.split("commit ")[1:]:
        touched = False
        for line in commit.splitlines()[1:]:
            kind, *paths = line.split("\t")
            now = today.get(paths[-1], paths[-1]) if paths else ""
            if kind.startswith("R"):
                today[paths[0]] = now
            if kind != "R100" and any(now == part or now.startswith(f"{part}/") for part in code):
                touched = True
        count += touched
    return count


@pytest.mark.parametrize(("path", "name"), TABLES, ids=[f"{path.relative_to(ROOT)}:{name}" for path, name in TABLES])
def test_a_table_is_no_older_than_a_release(path, name, has_history):
    commit = json.loads(path.read_text())["provenance"]["commit"].split()[0]
    since = f"{commit}..HEAD"
    log = git(ROOT, "log", "--topo-order", "-M", "--name-status", "--format=commit %h", since, "--", *TOPS)
    assert log is not None, f"the table's commit {commit} is not in this repository"
    behind = touching(code_of(name), log)
    assert behind <= MOST, f"{behind} commits to what it times since {commit}: run python -m benchmarks {name}"


TOPS = ("kaestat", "simulations", "llm_experiments")


def test_every_benchmark_names_code_that_is_there():
    for _, name in TABLES:
        for part in code_of(name):
            assert part.startswith(TOPS) and (ROOT / part).exists(), f"{name}: {part}"


def test_a_file_that_moved_is_followed_and_the_move_itself_counts_for_nothing():
    moved = "R100\tkaestat/a.py\tkaestat/new/a.py"
    log = f"commit c\n\nM\tkaestat/new/a.py\ncommit b\n\n{moved}\ncommit a\n\nM\tkaestat/a.py\n"
    assert touching(("kaestat/new",), log) == 2
    assert touching(("kaestat/new",), log.replace("R100", "R090")) == 3
    assert touching(("kaestat/other",), log) == 0
