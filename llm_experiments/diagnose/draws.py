"""Small groups drawn from the pools, as a training step would see them.

Random numbers come from a counter-based generator whose counter holds the repeat: repeat r is the same whatever other
repeats are drawn with it, so results do not depend on how the repeats are cut into chunks.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kaestat import Groups, Visits
from llm_experiments.diagnose.pool_rewards import PoolRewards

CHUNK_CELLS = 2_000_000  # numbers in one array: 16 MB


@dataclass(frozen=True, eq=False)
class DrawnGroups:
    """R repeats of the current groups, and of the groups at the past steps.

    indices (integer ndarray, shape (R, P, G)): Position in the target pool of each drawn completion, in the order of
        the group.
    history_indices (integer ndarray, shape (R, P, H, G')): Position in the pool of each past step, oldest first.
    """

    pool: PoolRewards
    indices: np.ndarray
    history_indices: np.ndarray

    @property
    def reward(self) -> np.ndarray:
        """Of the current groups, shape (R, P, G)."""
        return self._current(self.pool.target)

    def groups(self, weighting: str = "") -> Groups:
        """The current groups, with the weights of that name if one is given."""
        weight = self._current(self.pool.target_weight[weighting]) if weighting else None
        return Groups(self.reward, weight=weight)

    def past_groups(self, position: int) -> Groups:
        """The groups of one past step, 0 for the oldest."""
        return Groups(self._past(self.pool.history)[..., position, :])

    def visits(self, weighting: str = "", *, before: int | None = None) -> Visits:
        """The past as seen from the target step, or from an earlier one.

        before: See only the past steps before this position, from the step at it; None sees all from the target step.
        """
        seen = self.pool.n_history if before is None else before
        reward = self._past(self.pool.history)[..., :seen, :]
        lag = np.broadcast_to(np.arange(seen, 0, -1, dtype=float), reward.shape[:-1])
        sums = {
            "lag": lag,
            "count": np.full(lag.shape, float(reward.shape[-1])),
            "total": reward.sum(axis=-1),
            "total_sq": (reward**2).sum(axis=-1),
        }
        if weighting:
            weight = self._past(self.pool.history_weight[weighting])[..., :seen, :]
            sums |= {
                "weight": weight.sum(axis=-1),
                "weight_sq": (weight**2).sum(axis=-1),
                "weighted_total": (weight * reward).sum(axis=-1),
                "weighted_total_sq": (weight * reward**2).sum(axis=-1),
                "weight_sq_total": (weight**2 * reward).sum(axis=-1),
                "weight_sq_total_sq": ((weight * reward) ** 2).sum(axis=-1),
            }
        return Visits(**sums)

    def _current(self, pooled: np.ndarray) -> np.ndarray:
        return pooled[np.arange(len(pooled))[:, None], self.indices]

    def _past(self, pooled: np.ndarray) -> np.ndarray:
        steps = np.arange(pooled.shape[1])[:, None]
        return pooled[np.arange(len(pooled))[:, None, None], steps, self.history_indices]


@dataclass(frozen=True)
class Drawing:
    """How groups are drawn.

    group_size: G.
    first: Completions at the head of the target pool that are left out: the oracle pool.
    replace: With replacement within a group, as in the paper's gradient diagnostic; its value diagnostic draws without.
    purpose: Separates diagnostics that share a seed.
    """

    group_size: int
    first: int = 0
    replace: bool = False
    seed: int = 0
    purpose: int = 0

    def chunks(self, pool: PoolRewards, repeats: int) -> Iterator[DrawnGroups]:
        """All repeats, in chunks that bound the memory."""
        cells = pool.n_prompts * max(self.group_size * (1 + pool.n_history), pool.n_target)
        at_once = max(1, CHUNK_CELLS // cells)
        for start in range(0, repeats, at_once):
            yield self.draw(pool, range(start, min(start + at_once, repeats)))

    def draw(self, pool: PoolRewards, repeats: range) -> DrawnGroups:
        """These repeats."""
        available = pool.n_target - self.first
        current, past = [], []
        for generator in map(self._generators(pool.step), repeats):
            current.append(self.first + self._positions(generator, (pool.n_prompts, available), self.group_size))
            past.append(self._positions(generator, pool.history.shape, self.group_size))
        return DrawnGroups(pool, np.stack(current), np.stack(past))

    def _positions(self, generator: np.random.Generator, shape: tuple[int, ...], number: int) -> np.ndarray:
        """So many positions out of ``shape[-1]`` for each row, in random order."""
        *rows, size = shape
        if self.replace:
            return generator.integers(size, size=(*rows, number))
        return np.argsort(generator.random(shape), axis=-1)[..., :number]

    def _generators(self, step: int):
        """Function from a repeat to its generator: disjoint counters under one key."""
        key = np.random.SeedSequence((self.seed, step, self.purpose)).generate_state(2, np.uint64)
        return lambda repeat: np.random.Generator(np.random.Philox(key=key, counter=(0, 0, 0, repeat)))
