"""A real run, killed with ``kill -9`` in the middle and run again, loses only the shards that were being computed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

from simulations.harness import RunSettings
from tests.helpers.tiers import slow_after
from tests.helpers.toy_studies import LOG, SLEEP, TOY, run_quietly, shard_bytes

STUDY = replace(TOY, replicates=80, shard=8)
SHARDS = 60
RUN = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.helpers.toy_studies import TOY, run_quietly
if __name__ == "__main__":
    run_quietly(replace(TOY, replicates=80, shard=8), Path(sys.argv[1]), backend=sys.argv[2], jobs=int(sys.argv[3]))
"""
PATIENCE = 120  # seconds until a run that does not get on is called stuck


def start(out: Path, backend: str, jobs: int, log: Path) -> subprocess.Popen:
    """A run in a process group of its own, each of whose shards takes at least 20 ms and leaves a file in ``log``."""
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, LOG: str(log), SLEEP: "0.02"}
    log.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(out), backend, str(jobs)], env=environment, start_new_session=True
    )


def kill_after(process: subprocess.Popen, folder: Path, shards: int) -> None:
    """Kill a run and its workers at once, as soon as it has stored so many shards."""
    deadline = time.monotonic() + PATIENCE
    while len(list(folder.rglob("*.shard"))) < shards:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline, "the run does not get on"
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def computed(log: Path) -> Counter:
    """How often each shard's computation was begun."""
    return Counter(path.name.rsplit("_", 1)[0] for path in log.iterdir())


@pytest.mark.parametrize(("backend", "jobs"), slow_after(1, [("sequential", 1), ("loky", 2)]))
def test_killed_run_resumes_to_the_same_bits_and_computes_nothing_stored_again(tmp_path, backend, jobs):
    whole = run_quietly(STUDY, tmp_path / "whole")
    out, log = tmp_path / "out", tmp_path / "log"
    folder = RunSettings(out=out).folder(STUDY)
    stored = 0
    for shards in (5, 20):  # killed twice
        kill_after(start(out, backend, jobs, log), folder, max(shards, stored + 1))
        stored = len(list(folder.rglob("*.shard")))
        assert stored < SHARDS, "the run was over before it was killed: the test shows nothing"
    resumed_at = stored
    process = start(out, backend, jobs, log)
    assert process.wait(timeout=PATIENCE) == 0
    begun = computed(log)
    assert len(begun) == SHARDS
    assert sum(begun.values()) - SHARDS <= 2 * jobs, "more was lost than the shards being computed at the two kills"
    result = run_quietly(STUDY, out)
    assert (result.computed, result.damaged) == (0, [])
    assert resumed_at >= 20
    assert_frame_equal(result.summary, whole.summary, check_exact=True)
    assert shard_bytes(result.folder) == shard_bytes(whole.folder)
