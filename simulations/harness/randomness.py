"""Random numbers that depend on the cell's content and the replicate, and on nothing else."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np


class Streams:
    """One independent random stream for each of R replicates.

    Arrays come with a leading axis of replicates, and each replicate's numbers are the same however replicates are
    split over shards, workers or runs. Draws are named: what is drawn under one name does not depend on what else
    a study draws, so methods and cells can share data (common random numbers).

    Parameters
    ----------
    seed : int
        Seed of the whole run.
    key : str
        Hexadecimal content hash (`Study.seed_key`).
    replicates : sequence of int
        Numbers of the replicates.
    """

    def __init__(self, seed: int, key: str, replicates: Sequence[int]):
        self.seed, self.key, self.replicates = int(seed), key, tuple(int(r) for r in replicates)

    def __len__(self) -> int:
        return len(self.replicates)

    def generators(self, name: str) -> list[np.random.Generator]:
        """A fresh generator for each replicate, at the start of the stream called ``name``."""
        entropy = (self.seed, int(self.key, 16))
        label = zlib.crc32(name.encode())
        return [
            np.random.Generator(np.random.SFC64(np.random.SeedSequence(entropy, spawn_key=(replicate, label))))
            for replicate in self.replicates
        ]

    def uniform(self, name: str, *shape: int) -> np.ndarray:
        """Uniform on [0, 1), float32 (24 random bits: fast, and plenty to compare with a probability)."""
        drawn = np.empty((len(self), *shape), dtype=np.float32)
        for generator, out in zip(self.generators(name), drawn, strict=True):
            generator.random(out=out, dtype=np.float32)
        return drawn

    def normal(self, name: str, *shape: int) -> np.ndarray:
        """Standard normal, float64."""
        drawn = np.empty((len(self), *shape))
        for generator, out in zip(self.generators(name), drawn, strict=True):
            generator.standard_normal(out=out)
        return drawn

    def each(self, name: str, draw: Any) -> np.ndarray:
        """Stack of ``draw(generator)`` over replicates, for every other distribution."""
        return np.stack([draw(generator) for generator in self.generators(name)])
