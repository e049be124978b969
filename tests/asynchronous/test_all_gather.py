"""Real processes that exchange what came in have the history of one process that saw it all."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kaestat import AsynchronousEstimator
from tests.helpers.arrivals import run
from tests.helpers.gathering_rank import N_STEPS, OPTIONS, of_rank

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_every_rank_ends_with_the_values_of_one_process(ranks, tmp_path):
    command = [sys.executable, "-m", "tests.helpers.gathering_rank", str(tmp_path)]
    processes = [
        subprocess.Popen([*command, str(rank), str(ranks)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for rank in range(ranks)
    ]
    for process in processes:
        said, _ = process.communicate(timeout=180)
        assert process.returncode == 0, said.decode()
    for method, options in OPTIONS.items():
        whole = AsynchronousEstimator(method, **options)
        for step, part in enumerate(run(0, N_STEPS)):
            for rank in range(ranks):
                own = of_rank(part, rank, ranks)
                if rank or step % 3:
                    whole.observe(own.ids, own.reward, step)
        whole.step([0, 0, 1, 2], [1.0, 0.0, 1.0, 0.0], N_STEPS)
        for rank in range(ranks):
            np.testing.assert_allclose(np.load(tmp_path / f"{method}-{rank}.npy"), whole.values, rtol=0, atol=1e-12)
