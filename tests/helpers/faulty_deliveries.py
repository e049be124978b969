"""Workers that send deltas to one history over a network that drops, repeats and reorders, with crashes of both.

``python -m tests.helpers.faulty_deliveries FIRST LAST`` runs the schedules of a range of seeds.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from kaestat import AdvantageEstimator
from kaestat.history.delta import HistoryDelta
from kaestat.integrations.workers.ray_actor import SavedEstimator
from tests.helpers.arrivals import mixed, run, visits_of

N_STEPS = 5


def schedule(seed: int, folder: Path) -> tuple[dict, dict, int]:
    """Visits of the serial run and of the faulty one, and the number of faults."""
    rng = np.random.default_rng([seed, 38])
    parts = mixed(run(seed, N_STEPS, 4), seed)
    path, every = folder / "actor", int(rng.integers(1, 4))
    whole = AdvantageEstimator("kae", bandwidth=6.0, order="any")
    workers = [AdvantageEstimator("kae", bandwidth=6.0, order="any", keep_deltas=True) for _ in range(2)]
    saved = [worker.state_dict() for worker in workers]
    actor = SavedEstimator("kae", bandwidth=6.0, path=path, every=every)
    sent: list[tuple[int, bytes]] = []
    answers: list[tuple[int, list]] = []
    faults = 0
    for _ in range(80):
        which, what = int(rng.integers(2)), rng.random()
        if what < 0.25 and parts:
            part = parts.pop()
            for estimator in (whole, workers[which]):
                estimator.observe(part.ids, part.reward, N_STEPS, version=part.version)
            saved[which] = workers[which].state_dict()  # a worker saves before it sends
        elif what < 0.33 and len(sent) < 6:
            sent.append((which, workers[which].pending_delta().to_bytes()))
        elif what < 0.7 and sent:
            place = int(rng.integers(len(sent)))
            sender, content = sent[place]
            if rng.random() < 0.7:
                del sent[place]
            if rng.random() < 0.7:
                answers.append((sender, list(actor.merge(HistoryDelta.from_bytes(content)))))
            else:
                faults += 1
        elif what < 0.85 and answers:
            sender, origins = answers.pop(int(rng.integers(len(answers))))
            workers[sender].acknowledge(origins)
        elif what < 0.92:
            actor, faults = SavedEstimator("kae", bandwidth=6.0, path=path, every=every), faults + 1
        elif what < 0.97:
            workers[which] = AdvantageEstimator("kae", bandwidth=6.0, order="any", keep_deltas=True)
            workers[which].load_state_dict(saved[which])
            faults += 1
    for content in (*(content for _, content in sent), *(worker.pending_delta().to_bytes() for worker in workers)):
        actor.merge(HistoryDelta.from_bytes(content))
    for part in parts:
        for estimator in (whole, actor.estimator):
            estimator.observe(part.ids, part.reward, N_STEPS, version=part.version)
    return visits_of(whole, N_STEPS), visits_of(actor.estimator, N_STEPS), faults


def main(first: int, last: int) -> None:
    unequal, faults = [], 0
    for seed in range(first, last):
        with tempfile.TemporaryDirectory() as folder:
            serial, faulty, found = schedule(seed, Path(folder))
        faults += found
        if serial != faulty:
            unequal.append(seed)
    print(f"seeds {first} to {last - 1}: {len(unequal)} unequal, {faults} drops and crashes", unequal[:9], flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
