"""Runs killed with SIGKILL and resumed from their last checkpoint end as the uninterrupted run, to the last bit.

An epoch has several generations, a generation several batches, and an optimiser step several batches of its own.
"""

import json

import pytest

from tests.helpers.processes import run_module

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("case", "processes", "batches", "generations"),
    [
        ("sampler", 1, (9, 22), 9),
        ("short generations", 1, (29,), 36),
        ("uneven epochs", 1, (12,), 24),
        ("groups", 1, (9,), 18),
        ("TRL's order", 1, (23,), 9),
        ("sampler", 2, (26,), 9),
    ],
)
def test_a_killed_run_ends_as_the_uninterrupted_one(case, processes, batches, generations, tmp_path):
    run_module("tests.helpers.killed_trl", tmp_path, case, processes, *batches, timeout=600)
    found = json.loads((tmp_path / "found.json").read_text())
    assert [len(rank["generations"]) for rank in found["whole"]] == [generations] * processes
    assert len({rank["states"] for rank in found["whole"]}) == 1  # all processes draw and record the same
    assert set(found["resumed"]) == {str(batch) for batch in batches}
    for resumed in found["resumed"].values():
        for before, after in zip(found["whole"], resumed, strict=True):
            assert after["checkpoint"] is not None
            assert 0 < len(after["generations"]) < generations
            assert after["generations"] == before["generations"][-len(after["generations"]) :]
            for what in ("log", "weights", "states"):
                assert after[what] == before[what], what
