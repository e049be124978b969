"""The code on the pages of docs/ runs and prints what it says.

A page is one program: its Python blocks run in order and share their names, as a reader would run them. What they print
stands below in comments; ``pytest tests/docs --update-examples`` writes it. The pages on trainers are run beside their
trainers, in tests/integrations, and the README by tests/test_readme.py.
"""

from __future__ import annotations

import warnings
from itertools import groupby
from pathlib import Path

import pytest
from pytest_examples import CodeExample, EvalExample, find_examples

DOCS = Path(__file__).parents[2] / "docs"
RUN_ELSEWHERE = {"frameworks"}


def pages() -> dict[str, list[CodeExample]]:
    """The Python blocks of each page."""
    examples = find_examples(DOCS)
    found = {name: list(blocks) for name, blocks in groupby(examples, lambda block: _name(block.path))}
    return {name: blocks for name, blocks in found.items() if name.partition("/")[0] not in RUN_ELSEWHERE}


def _name(path: Path) -> str:
    return path.relative_to(DOCS).as_posix()


PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_python_blocks_of_a_page_run_in_order_and_print_what_they_say(
    name, eval_example: EvalExample, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for block in PAGES[name]:
            if eval_example.update_examples:
                names = eval_example.run_print_update(block, module_globals=names)
            else:
                names = eval_example.run_print_check(block, module_globals=names)


@pytest.mark.parametrize("name", PAGES)
def test_python_blocks_of_a_page_have_the_project_s_style(name, eval_example: EvalExample):
    eval_example.set_config(line_length=120, ruff_select=["E", "F", "I", "B", "UP"], ruff_ignore=["F821", "E402"])
    for block in PAGES[name]:
        eval_example.lint_ruff(block)


def test_no_page_marks_a_block_as_not_to_be_run():
    assert not [str(block) for blocks in PAGES.values() for block in blocks if block.prefix_settings()]
