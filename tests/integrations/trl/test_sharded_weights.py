"""Weights by norms where FSDP spreads the model over two processes (gloo, on the CPU)."""

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.processes import TWO, run_module
from tests.llm_experiments.training.test_sharded import sharding

pytestmark = pytest.mark.slow


FSDP1 = {"FSDP_VERSION": "1", "FSDP_USE_ORIG_PARAMS": "true", "FSDP_CPU_RAM_EFFICIENT_LOADING": "false"}


@pytest.fixture(scope="module", params=[FSDP1, {}], ids=["FSDP1", "FSDP2"])
def folder(request, tmp_path_factory) -> Path:
    """What both processes wrote."""
    folder = tmp_path_factory.mktemp("sharded")
    run_module(*TWO, "tests.helpers.sharded_weights", folder, environment=sharding() | request.param)
    return folder


@pytest.mark.parametrize("name", ["training pass", "checkpointing", "exact", "own pass"])
def test_weights_are_those_of_a_loop_over_completions_with_the_whole_model(name, folder):
    first, second = (np.load(folder / f"{name}-{rank}.npz") for rank in (0, 1))
    np.testing.assert_array_equal(first["weights"], second["weights"])
    weights, reference = first["weights"], first["reference"]
    assert weights.shape[1] == 16 and weights.std(axis=1).min() > 0.01
    expected = reference if name == "exact" else reference / reference.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(weights, expected, rtol=1e-3)


def test_collecting_norms_leaves_the_gradients_of_shards_as_they_are(folder):
    with_norms, without = (np.load(folder / f"momenta-{weights}-0.npz") for weights in ("adam", "none"))
    assert set(with_norms) == set(without)
    for name in without:
        size = np.abs(without[name]).max()
        assert size > 0
        np.testing.assert_allclose(with_norms[name], without[name], rtol=1e-3, atol=1e-5 * size, err_msg=name)
