"""What each process does in the test of the exchange between ranks.

Run as ``python -m tests.helpers.gathering_rank FOLDER RANK RANKS``.
"""

import sys
from pathlib import Path

import numpy as np
import torch.distributed as dist

from kaestat import AsynchronousEstimator
from kaestat.asynchronous.all_gather import exchange
from tests.helpers.arrivals import run

N_STEPS = 12
OPTIONS = {"kae": {"bandwidth": 6.0}, "kae_eb": {}}


def of_rank(part, rank: int, ranks: int):
    """The completions that a rank has scored: groups are cut through."""
    return part.part(np.arange(len(part)) % ranks == rank)


def main(folder: Path, rank: int, ranks: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=ranks)
    for method, options in OPTIONS.items():
        estimator = AsynchronousEstimator(method, keep_deltas=True, **options)
        for step, part in enumerate(run(0, N_STEPS)):
            own = of_rank(part, rank, ranks)
            if rank or step % 3:  # the first has nothing to tell at times
                estimator.step(own.ids, own.reward, step)
            if step % 2:
                exchange(estimator)
        exchange(estimator)
        estimator.step([0, 0, 1, 2], [1.0, 0.0, 1.0, 0.0], N_STEPS)
        np.save(folder / f"{method}-{rank}.npy", estimator.values)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
