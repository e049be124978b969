"""A result names the commit of its code, and tells whether source files differed from it."""

import subprocess

import pytest

from kaestat.core.provenance import checked_out_commit


@pytest.fixture
def checkout(tmp_path):
    """A repository with one source file in a folder."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "code.py").write_text("x = 1\n")
    who = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def test_a_commit_without_changes_stands_alone(checkout):
    commit = checked_out_commit(checkout)
    assert len(commit) == 40 and checked_out_commit(checkout / "package") == commit


def test_results_tests_and_links_to_environments_are_no_changes(checkout):
    commit = checked_out_commit(checkout)
    (checkout / "tests").mkdir()
    (checkout / "tests" / "test_code.py").write_text("1\n")
    (checkout / "results.csv").write_text("1\n")
    (checkout / ".venv").symlink_to(checkout / "package")
    assert checked_out_commit(checkout) == commit


@pytest.mark.parametrize("name", ["package/code.py", "package/new.py", "new.yaml"])
def test_source_files_that_differ_give_the_checksum_of_their_difference(checkout, name):
    commit = checked_out_commit(checkout)
    marks = []
    for content in ("x = 2\n", "x = 3\n", "x = 2\n"):
        (checkout / name).write_text(content)
        assert checked_out_commit(checkout) == checked_out_commit(checkout / "package")
        marks.append(checked_out_commit(checkout))
    assert marks[0].startswith(f"{commit} (with uncommitted changes ")
    assert marks[0] == marks[2] != marks[1]


def test_a_folder_outside_a_checkout_has_no_commit(tmp_path):
    assert checked_out_commit(tmp_path) is None
