"""Random numbers that depend on the cell's content and the replicate, and on nothing else."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence

import numpy as np


class Streams:
    """One independent random stream for each of R replicates.

    Arrays come with a leading axis of replicates, and each replicate's numbers are the same however replicates are
    split over shards, workers or runs. Draws are named: what is drawn under one name does not depend on what else
    a study draws, so methods and cells can share data (common random numbers). Asking for a name twice gives the same
    numbers twice.

    seed: Seed of the whole run.
    key: Content hash (`Study.seed_key`).
    replicates: Numbers of the replicates, counted from 0.
    """

    def __init__(self, seed: int, key: str, replicates: Sequence[int]):
        self.seed, self.key, self.replicates = int(seed), key, tuple(int(r) for r in replicates)

    def __len__(self) -> int:
        return len(self.replicates)

    def generators(self, name: str) -> list[np.random.Generator]:
        """A fresh generator for each replicate, at the start of the stream called ``name``."""
        content = hashlib.sha256(json.dumps([self.seed, self.key, name]).encode()).digest()
        words = np.empty((len(self), 8), dtype=np.uint32)  # of entropy: the content's, then the replicate's
        words[:, :-2] = np.frombuffer(content, dtype="<u4")[:6]
        words[:, -2:] = np.array(self.replicates, dtype="<u8")[:, None].view("<u4")
        return [np.random.Generator(np.random.SFC64(np.random.SeedSequence(row))) for row in words]

    def uniform(self, name: str, *shape: int) -> np.ndarray:
        """Uniform on [0, 1), float32 (24 random bits: plenty to compare with a probability); shape (R, *shape)."""
        drawn = np.empty((len(self), *shape), dtype=np.float32)
        for generator, out in zip(self.generators(name), drawn.reshape(len(self), math.prod(shape)), strict=True):
            generator.random(out=out, dtype=np.float32)
        return drawn

    def normal(self, name: str, *shape: int) -> np.ndarray:
        """Standard normal, float64; shape (R, *shape)."""
        drawn = np.empty((len(self), *shape))
        for generator, out in zip(self.generators(name), drawn.reshape(len(self), math.prod(shape)), strict=True):
            generator.standard_normal(out=out)
        return drawn

    def each(self, name: str, draw: Callable[[np.random.Generator], np.ndarray]) -> np.ndarray:
        """Stack of ``draw(generator)`` over replicates, for every other distribution."""
        return np.stack([draw(generator) for generator in self.generators(name)])
