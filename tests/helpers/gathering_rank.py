"""What each process does in the test of the exchange between ranks.

Run as ``python -m tests.helpers.gathering_rank FOLDER RANK RANKS``.
"""

import sys
from pathlib import Path

import numpy as np
import torch.distributed as dist

from kaestat import AdvantageEstimator
from kaestat.credit.turn_estimator import TurnEstimator
from kaestat.integrations.workers.all_gather import exchange, exchange_turns
from tests.helpers.arrivals import run

N_STEPS = 12
OPTIONS = {"kae": {"bandwidth": 6.0}, "kae_eb": {}}


def of_rank(part, rank: int, ranks: int):
    """The completions that a rank has scored: groups are cut through."""
    return part.part(np.arange(len(part)) % ranks == rank)


def turns_of(step: int) -> tuple[list[int], list[list[float]]]:
    """Completions of one step, of one turn to four; the first rank's are short."""
    rng = np.random.default_rng([step, 8])
    ids = rng.integers(4, size=12).tolist()
    return ids, [
        rng.integers(2, size=rng.integers(1, 3 if row % 2 == 0 else 5)).astype(float).tolist() for row in range(12)
    ]


def exchanged_turns(folder: Path, rank: int, ranks: int) -> None:
    turns = TurnEstimator("kae", bandwidth=6.0, order="any", keep_deltas=True)
    for step in range(N_STEPS):
        ids, rewards = turns_of(step)
        turns.step(ids[rank::ranks], rewards[rank::ranks], step)
        if step % 2:
            exchange_turns(turns)
    turns.step([0, 1, 2], [[1.0, 0.0, 0.0, 1.0]] * 3, N_STEPS)
    np.save(folder / f"turns-{rank}.npy", np.array(turns.values))


def main(folder: Path, rank: int, ranks: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=ranks)
    for method, options in OPTIONS.items():
        estimator = AdvantageEstimator(method, order="any", keep_deltas=True, **options)
        for step, part in enumerate(run(0, N_STEPS)):
            own = of_rank(part, rank, ranks)
            if rank or step % 3:  # the first has nothing to tell at times
                estimator.step(own.ids, own.reward, step)
            if step % 2:
                exchange(estimator)
        exchange(estimator)
        estimator.step([0, 0, 1, 2], [1.0, 0.0, 1.0, 0.0], N_STEPS)
        np.save(folder / f"{method}-{rank}.npy", estimator.values)
    exchanged_turns(folder, rank, ranks)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
