"""``kill -9`` of each command that writes: nothing half written, and run again it ends as if it had never been killed.

``python -m llm_experiments train`` has this test beside its others, in tests/llm_experiments/test_llm_training.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kaestat.datasets import simulated_run

ROOT = Path(__file__).parents[2]
VARYING = {"provenance.json", "index.html", "report.html"}  # they hold the command, the time or the seconds it took


def kill_and_resume(command: str, folder: Path) -> dict:
    """What `tests.hardening.killed_command` saw."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    process = subprocess.run(
        [sys.executable, "-m", "tests.hardening.killed_command", command, str(folder)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def check(seen: dict) -> None:
    assert seen["kills"] >= 3, f"the command was hardly killed, so that this shows nothing: {seen}"
    assert seen["torn"] == [], "a file stood half written under its own name"
    assert seen["status"] == 0, "after the kills the command no longer runs to its end"
    assert seen["missing"] == seen["more"] == []
    assert {Path(name).name for name in seen["differ"]} <= VARYING, f"the kills changed results: {seen['differ']}"


@pytest.mark.parametrize("command", ["analyze", "simulations", "paper_figures"])
def test_a_killed_command_ends_as_if_it_had_never_been_killed(tmp_path, command):
    frame = simulated_run(n_prompts=20, n_epochs=6).log.frame
    frame[["prompt", "step", "reward"]].to_csv(tmp_path / "log.csv", index=False)
    check(kill_and_resume(command, tmp_path))
