"""The README says what is true: its code runs, and its table is the registry's."""

import re
import shlex
from pathlib import Path

import pytest

from kaestat.cli import run
from kaestat.datasets import simulated_run
from kaestat.registry import METHODS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"))
def test_every_python_block_runs_as_it_stands(code, capsys):
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


def test_plain_array_example_gives_the_kernel_mean():
    scope = {}
    exec(next(code for code in blocks("python") if "kaestat.Groups" in code), scope)
    # Prompt 0, completion 0: past (1.8 * 2 + 1.6 * 1) and the other two rewards (2 * 1), over their weights.
    assert scope["values"][0, 0] == pytest.approx((1.8 * 2 + 1.6 * 1 + 2 * 1) / (1.8 * 3 + 1.6 * 3 + 2 * 2))


def test_every_kaestat_command_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = simulated_run(n_prompts=30, n_epochs=8).log.frame
    frame[["prompt", "step", "reward"]].to_csv("rewards.csv", index=False)
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("kaestat ")]
    assert len(commands) == 4
    for command in commands:
        assert run(shlex.split(command)[1:]) == 0, capsys.readouterr().err
    assert (tmp_path / "report" / "report.html").exists()


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make (\w+)", README, re.MULTILINE)) == {"reproduce", "test"} <= targets


def test_every_configuration_and_module_that_is_named_exists():
    named = re.findall(r"(?:llm_experiments|paper_figures)/[\w./]+\.(?:yaml|py)", README)
    assert named and all((ROOT / path).is_file() for path in named)


def test_table_lists_all_methods_in_the_registry_s_words():
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", README, re.MULTILINE)
    assert rows == [(method.name, method.summary) for method in METHODS.values()]
