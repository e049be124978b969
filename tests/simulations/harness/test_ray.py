"""The same study on Ray, unchanged, gives the same bits."""

from __future__ import annotations

import os

import pytest
from pandas.testing import assert_frame_equal

from tests.helpers.toy_studies import FRAGILE, TOY, run_quietly, shard_bytes

ray = pytest.importorskip("ray", reason="Ray is not installed (pip install -e '.[ray]'); its backend was not tested")


@pytest.fixture(scope="module", autouse=True)
def no_cluster_left_running():
    yield
    ray.shutdown()


def test_ray_gives_the_same_bits_as_this_process_and_stores_in_this_process(tmp_path):
    whole, result = run_quietly(TOY, tmp_path / "whole"), run_quietly(TOY, tmp_path / "ray", backend="ray", jobs=2)
    assert result.computed == 30
    assert_frame_equal(result.summary, whole.summary, check_exact=True)
    assert shard_bytes(result.folder) == shard_bytes(whole.folder)
    assert run_quietly(TOY, tmp_path / "ray", backend="ray", jobs=2).computed == 0


@pytest.mark.slow
def test_failure_on_ray_is_recorded_and_costs_its_cell_alone(tmp_path):
    result = run_quietly(FRAGILE, tmp_path, backend="ray", jobs=2)
    assert [failure["replicates"] for failure in result.failures] == [[17], [17]]
    assert len(result.summary) == 8
    assert os.environ.get("RAY_ADDRESS") is None
