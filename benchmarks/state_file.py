"""Saving and loading the state of an estimator: 17,000 prompts (a common training set) and a million, with ten
visits each."""

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.rows import Row
from benchmarks.timing import estimate, interleaved
from kaestat import AdvantageEstimator

CODE = ("kaestat/core/storage.py", "kaestat/estimator", "kaestat/history")
CLAIM = "Saving, and loading, a state of 17,000 prompts × 10 visits takes at most 0.2 s each; of 1 million, 1 s"
SIZES = {"full": ((17_000, 10, 20, 0.2), (1_000_000, 10, 7, 1.0)), "tiny": ((5, 3, 2, 0.2),)}


def run(size: str = "full") -> list[Row]:
    """Seconds of `AdvantageEstimator.save` (to disk, synced) and `load`, and the size of the file, by type of id."""
    return [row for shape in SIZES[size] for id_type in ("string", "integer") for row in _case(id_type, *shape)]


def _case(id_type: str, n_prompts: int, n_visits: int, repetitions: int, most: float) -> list[Row]:
    estimator = AdvantageEstimator("kae", bandwidth=10)
    ids = [i if id_type == "integer" else f"train/{i:07d}" for i in range(n_prompts)]
    rng = np.random.default_rng(0)
    for step in range(n_visits):
        estimator.step(ids, (rng.random(n_prompts) < 0.5) * 1.0, step=step)
    case = f"{n_prompts:,} prompts × {n_visits} visits, {id_type} ids"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.npz"
        seconds = interleaved(
            {"save": lambda: estimator.save(path), "load": lambda: AdvantageEstimator.load(path)},
            repetitions=repetitions,
        )
        size = path.stat().st_size / 1e6
    return [
        *(Row(case, name, "s", estimate(sample), at_most=most) for name, sample in seconds.items()),
        Row(case, "file", "MB", estimate(np.array([size]))),
    ]
