"""The code on the pages of docs/ runs, and prints what stands below it.

A page is one program: its Python blocks run in order and share their names, as a reader would run them. A block of
``text`` after one is what it printed. Our own commands in shell blocks are run, or their options looked up. The Python
blocks of the pages on trainers, and of the tutorial on TRL, are run beside their trainers, in tests/integrations, and
the README's by tests/docs/test_readme.py.
"""

import contextlib
import io
import re
import runpy
import shlex
import sys
import warnings
from functools import cache
from pathlib import Path

import pytest
from sybil import Document, Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

from kaestat.datasets import simulated_run
from kaestat.report import commands as report_commands
from kaestat.report.cli import run
from tests.helpers.tiers import slow_after

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RUN_ELSEWHERE = {"frameworks", "upstream", "half_the_completions.md"}
OURS = re.compile(r"(?:^|\s)(kaestat .*|make \w.*|-m (?:simulations|llm_experiments|paper_figures|benchmarks)\b.*)")
IN_THE_TREE = re.compile(
    r"(?<![\w/.-])((?:tests|simulations|llm_experiments|paper_figures|results|benchmarks|notebooks)/[\w./*-]+)"
)
MADE_BY_RUNS = ("results/reproduce", "results/evaluations", "results/NAME", "results/training/NAME")
SHELL_BLOCK = re.compile(r"^[ ]*```(?:sh|bash)\n(.*?)^[ ]*```", re.MULTILINE | re.DOTALL)


class OutputParser(CodeBlockParser):
    """Compares a block of text with what was printed since the last one."""

    language = "text"

    def evaluate(self, example: Example) -> str | None:
        printed = example.namespace["printed"]
        found = "\n".join(line.rstrip() for line in printed.getvalue().splitlines())
        printed.seek(0)
        printed.truncate()
        return None if found == example.parsed.strip("\n") else f"it printed\n{found}\nnot\n{example.parsed}"


SYBIL = Sybil([PythonCodeBlockParser(), OutputParser()], path=str(DOCS))


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix().removeprefix("docs/")


ALL_PAGES = sorted(DOCS.rglob("*.md"))
PYTHON_PAGES = [
    page for page in ALL_PAGES if not {page.parent.name, page.name} & RUN_ELSEWHERE and "```python" in page.read_text()
]


def evaluate(document: Document) -> None:
    """Run a page's blocks in order."""
    document.namespace |= {"__name__": "page", "printed": io.StringIO()}
    for example in document.examples():
        with contextlib.redirect_stdout(document.namespace["printed"]), warnings.catch_warnings():
            warnings.simplefilter("error")
            example.evaluate()


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=name_of)
def test_python_blocks_of_a_page_run_in_order_and_print_what_stands_below(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT)
    evaluate(SYBIL.parse(page))


def test_short_block_of_the_page_on_trl_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "frameworks" / "trl.md").read_text()
    (block,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if not code.startswith('"""')]
    names: dict = {}
    exec(compile(block, "trl.md", "exec"), names)
    assert names["config"].num_generations == 1


# Pages of upstream name the upstream's files.
OUR_PAGES = [ROOT / "README.md", *(page for page in ALL_PAGES if page.parent.name != "upstream")]


@pytest.mark.parametrize("page", OUR_PAGES, ids=name_of)
def test_files_that_a_page_names_are_there(page):
    text = re.sub(r"^```(?!sh|bash).*?^```|\{[{%].*?[}%]\}", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    named = {path.rstrip("/.") for path in IN_THE_TREE.findall(text)}
    named = {path for path in named if "NAME" not in path and not path.startswith(MADE_BY_RUNS)}
    missing = [path for path in named if not any(ROOT.glob(path))]
    assert missing == []


def commands() -> dict[str, str]:
    """Every command of ours in the shell blocks of the pages, with its page."""
    found = {}
    for page in ALL_PAGES:
        for block in SHELL_BLOCK.findall(page.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                ours = None if line.strip().startswith("pip ") else OURS.search(re.sub(r"\s+#.*", "", line))
                if ours:
                    found[ours[1].strip()] = name_of(page)
    return found


COMMANDS = commands()


@pytest.mark.parametrize(
    ("command", "page"), slow_after(3, [entry for entry in COMMANDS.items() if entry[0].startswith("kaestat ")])
)
def test_kaestat_commands_run(command, page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = simulated_run(n_prompts=30, n_epochs=8)
    monkeypatch.setattr(report_commands, "simulated_run", lambda: small)
    frame = small.log.frame
    frame[["prompt", "step", "reward"]].to_csv("rewards.csv", index=False)
    assert run(shlex.split(command)[1:]) == 0, capsys.readouterr().err


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {command.split()[1] for command in COMMANDS if command.startswith("make ")}
    named |= set(re.findall(r"^make ([\w-]+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert named and named <= targets


@cache
def help_text(module: str, *subcommand: str) -> str:
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        for name, setting in {"COLUMNS": "300", "TERM": "dumb", "NO_COLOR": "1"}.items():
            patch.setenv(name, setting)
        patch.setattr(sys, "argv", [module, *subcommand, "--help"])
        with pytest.raises(SystemExit) as end:
            runpy.run_module(module, run_name="__main__")
    assert not end.value.code
    return printed.getvalue()


@pytest.mark.parametrize(("command", "page"), [entry for entry in COMMANDS.items() if entry[0].startswith("-m ")])
def test_modules_subcommands_options_and_files_of_commands_exist(command, page):
    module, *words = shlex.split(command)[1:]
    subcommand = words[:1] if "COMMAND" in help_text(module) else []
    known = set(re.findall(r"--[a-z][a-z-]*", help_text(module, *subcommand)))
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert given <= known, page
    for word in words:
        if word.endswith((".yaml", ".py")):
            assert (ROOT / word).is_file(), f"{page}: {word}"
