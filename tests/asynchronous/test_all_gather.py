"""Real processes that exchange what came in have the history of one process that saw it all."""

from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist
import torch.multiprocessing

from kaestat import AsynchronousEstimator
from kaestat.asynchronous.all_gather import exchange
from tests.helpers.arrivals import run

N_STEPS = 12
OPTIONS = {"kae": {"bandwidth": 6.0}, "kae_eb": {}}
LAST = [0, 0, 1, 2], [1.0, 0.0, 1.0, 0.0], N_STEPS


def scored(rank: int, ranks: int):
    """The completions that a rank scores, by step: groups are cut through, and the first has nothing at times."""
    for step, part in enumerate(run(0, N_STEPS)):
        own = part.part(np.arange(len(part)) % ranks == rank)
        yield step, own if rank or step % 3 else None


def record(rank: int, folder: Path, ranks: int) -> None:
    """What each process does."""
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=ranks)
    for method, options in OPTIONS.items():
        estimator = AsynchronousEstimator(method, keep_deltas=True, **options)
        for step, own in scored(rank, ranks):
            if own is not None:
                estimator.step(own.ids, own.reward, step)
            if step % 2:
                exchange(estimator)
        exchange(estimator)
        estimator.step(*LAST)
        np.save(folder / f"{method}-{rank}.npy", estimator.values)
    dist.destroy_process_group()


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_every_rank_ends_with_the_values_of_one_process(ranks, tmp_path):
    torch.multiprocessing.spawn(record, (tmp_path, ranks), nprocs=ranks)
    for method, options in OPTIONS.items():
        whole = AsynchronousEstimator(method, **options)
        for rank in range(ranks):
            for step, own in scored(rank, ranks):
                if own is not None:
                    whole.observe(own.ids, own.reward, step)
        whole.step(*LAST)
        for rank in range(ranks):
            np.testing.assert_allclose(np.load(tmp_path / f"{method}-{rank}.npy"), whole.values, rtol=0, atol=1e-12)
