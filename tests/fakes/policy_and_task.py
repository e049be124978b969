"""A policy and a task without a model, for tests of what stands around them."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llm_experiments.policies.base import Completion, Policy, SamplingSettings
from llm_experiments.pools.sampling import sample_pool
from llm_experiments.pools.store import PoolStore
from llm_experiments.tasks.base import Problem, Task

IDENTITY = {"model": "fake", "seed": 3}


class FakePolicy(Policy):
    """Completions of one to four random tokens; fails, or waits, when told to."""

    def __init__(self, *, fails_at: str = "", seconds: float = 0.0):
        self.sampling = SamplingSettings(max_new_tokens=4)
        self.fails_at, self.seconds, self.calls = fails_at, seconds, []

    def encode(self, prompt: str) -> tuple[int, ...]:
        return tuple(prompt.encode())

    def sample(self, prompt: str, n: int, *, seed: int) -> list[Completion]:
        self.calls.append(prompt)
        if prompt == self.fails_at:
            raise KeyboardInterrupt
        time.sleep(self.seconds)
        rng = np.random.default_rng(seed)
        return [self._completion(rng) for _ in range(n)]

    def load_weights(self, checkpoint: str | Path) -> None:
        raise AssertionError("nothing here replaces weights")

    @staticmethod
    def _completion(rng: np.random.Generator) -> Completion:
        length = int(rng.integers(1, 5))
        tokens = tuple(rng.integers(10, size=length).tolist())
        log_probs = tuple(np.float32(rng.normal(-1, 0.1, size=length)).tolist())
        return Completion(tokens, log_probs, "".join(map(str, tokens)), finished=bool(length < 4))


@dataclass(frozen=True)
class FakeTask(Task):
    """Right is what begins with an even digit."""

    problems: tuple[Problem, ...] = tuple(Problem(f"fake/{k}", f"prompt {k}", "") for k in range(5))

    def rewards(self, problem: Problem, texts: list[str]) -> list[float]:
        return [float(int(text[0]) % 2 == 0) for text in texts]


def fill(folder: Path, policy: Policy, *, step: int = 7, size: int = 6, checkpoint: str = "abc") -> PoolStore:
    """Sample the pools of one step with a policy."""
    task = FakeTask()
    store = PoolStore(folder, IDENTITY, [problem.id for problem in task.problems])
    sample_pool(store, policy, task, step=step, checkpoint=checkpoint, size=size, seed=3)
    return store


if __name__ == "__main__":  # a process to be killed
    fill(Path(sys.argv[1]), FakePolicy(seconds=0.3))
