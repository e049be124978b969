"""Weights by norms where FSDP2 spreads the model over two processes (gloo, on the CPU)."""

import numpy as np
import pytest

from tests.helpers.processes import TWO, run_module
from tests.llm_experiments.training.test_sharded import sharding


@pytest.mark.slow
def test_weights_are_those_of_a_loop_over_completions_with_the_whole_model(tmp_path):
    # Three trainings, and a loop over their completions: on a busy machine they take longer than the usual limit.
    run_module(*TWO, "tests.helpers.sharded_weights", tmp_path, environment=sharding(), timeout=1200)
    for name in ("exact", "adam", "checkpointing"):
        first, second = (np.load(tmp_path / f"{name}-{rank}.npz") for rank in (0, 1))
        np.testing.assert_array_equal(first["weights"], second["weights"])
        weights, reference = first["weights"], first["reference"]
        assert weights.shape[1] == 16 and weights.std(axis=1).min() > 0.01
        expected = reference if name == "exact" else reference / reference.mean(axis=1, keepdims=True)
        np.testing.assert_allclose(weights, expected, rtol=1e-3, err_msg=name)
