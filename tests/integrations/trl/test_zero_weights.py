"""Weights by norms where DeepSpeed's ZeRO spreads the model over two processes (gloo, on the CPU), against one process.

DeepSpeed is not among the packages of the tests: ``make test-zero`` runs these.
"""

from functools import cache

import numpy as np
import pytest

from tests.helpers.processes import TWO, run_module

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """The folder, with what the processes of a stage wrote."""
    pytest.importorskip("deepspeed", reason="ZeRO needs deepspeed, which is not installed")
    folder = tmp_path_factory.mktemp("zero")

    @cache
    def ran(stage):
        launch = TWO if stage else ()
        run_module(*launch, "tests.helpers.zero_weights", folder, stage, environment={"DS_ACCELERATOR": "cpu"})
        return folder

    ran(0)
    return ran


@pytest.mark.parametrize("name", ["training pass", "checkpointing", "exact", "own pass"])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_two_processes_have_the_weights_of_one(stage, name, folder_of):
    folder = folder_of(stage)
    of_one = np.load(folder / f"{name}-0-0.npy")
    assert of_one.shape == (4, 16) and (of_one.std(axis=1) > 0.1 * of_one.mean(axis=1)).all()
    for rank in range(2):
        np.testing.assert_allclose(np.load(folder / f"{name}-{stage}-{rank}.npy"), of_one, rtol=1e-3)
