"""``kill -9`` of each command that writes: nothing half written, and run again it ends as if it had never been killed.

``python -m llm_experiments train`` has this test beside its others, in tests/llm_experiments/training/test_run.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kaestat.datasets import simulated_run
from tests.helpers.small_diagnosis import CONFIG
from tests.helpers.tiers import slow_after

ROOT = Path(__file__).parents[2]
# Files that hold the command, the time or the seconds that something took. Of a diagnosis, the tables are made from the
# scores and the records, and must not differ.
VARYING = re.compile(r"(provenance|manifest)\.json|(index|report)\.html|records/\d+\.json|\.scores$")


def kill_and_resume(command: str, folder: Path, *options: str) -> dict:
    """What `tests.helpers.killed_command` saw."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    process = subprocess.run(
        [sys.executable, "-m", "tests.helpers.killed_command", command, str(folder), *options],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def check(seen: dict, *, kills: int) -> None:
    assert seen["kills"] >= kills, f"the command was hardly killed, so that this shows nothing: {seen}"
    assert seen["torn"] == [], "a file stood half written under its own name"
    assert seen["status"] == 0, "after the kills the command no longer runs to its end"
    assert seen["missing"] == seen["more"] == []
    changed = [name for name in seen["differ"] if not VARYING.search(name)]
    assert changed == [], "the kills changed results"


@pytest.fixture
def log(tmp_path) -> None:
    """The log that ``kaestat analyze`` reads."""
    frame = simulated_run(n_prompts=20, n_epochs=6).log.frame
    frame[["prompt", "step", "reward"]].to_csv(tmp_path / "log.csv", index=False)


@pytest.mark.parametrize("command", slow_after(1, ["simulations", "analyze"]))
def test_a_command_killed_in_the_middle_ends_as_if_it_had_never_been_killed(tmp_path, log, command):
    check(kill_and_resume(command, tmp_path, "once"), kills=1)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["analyze", "simulations", "paper_figures"])
def test_a_command_killed_again_and_again_ends_as_if_it_had_never_been_killed(tmp_path, log, command):
    check(kill_and_resume(command, tmp_path), kills=3)


@pytest.mark.slow
def test_a_killed_diagnosis_and_its_figures_end_as_if_they_had_never_been_killed(tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    check(kill_and_resume("diagnose", tmp_path), kills=3)
    figures = tmp_path / "figures"
    figures.mkdir()
    shutil.copytree(tmp_path / "whole" / "results" / "smoke", figures / "results")
    check(kill_and_resume("llm_figures", figures), kills=3)
