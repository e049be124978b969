"""No prompt is starved: over a million steps, inclusion keeps to the floor, and revisits are as frequent as it says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kaestat.sampling import allocate, systematic

SIZE, BUDGET, FLOOR = 6, 2, 0.3
LEAST = FLOOR * BUDGET / SIZE
STATES, DRAWS = 400, 2_500  # a million steps: what is known changes every 2,500
FALSE_FAIL = 1e-6


def visits(floor: float) -> tuple[np.ndarray, np.ndarray]:
    """Least expectation of each prompt, and the steps at which it was drawn; the first two are solved, score 0."""
    rng = np.random.default_rng(5)
    least, drawn = np.full(SIZE, np.inf), np.empty((STATES * DRAWS, SIZE), dtype=bool)
    for state in range(STATES):
        value = np.append([0.0, 1.0], rng.random(SIZE - 2))
        expected = allocate(np.sqrt(value * (1 - value)), BUDGET, floor=floor, most=1.0)
        least = np.minimum(least, expected)
        for draw in range(DRAWS):
            drawn[state * DRAWS + draw] = systematic(expected, rng) > 0
    return least, drawn


@pytest.mark.slow
def test_over_a_million_steps_every_prompt_is_revisited_as_often_as_its_floor_says():
    """Solved prompts come at their floor within the binomial error, and no wait is longer than chance explains.

    The chance of any wait of ``log(P T / a) / -log(1 - floor)`` steps in T steps is at most a. Without a floor the
    solved prompts never come.
    """
    least, drawn = visits(FLOOR)
    steps = len(drawn)
    assert (least >= LEAST * (1 - 1e-12)).all()
    share = drawn.mean(axis=0)
    error = math.sqrt(LEAST * (1 - LEAST) / steps)
    assert (np.abs(share[:2] - LEAST) < 5 * error).all()
    assert (share >= LEAST - 5 * error).all()
    longest = max(np.diff(np.flatnonzero(drawn[:, k]), prepend=-1, append=steps).max() for k in range(SIZE))
    assert longest <= math.log(SIZE * steps / FALSE_FAIL) / -math.log1p(-LEAST) + 1


def test_without_a_floor_solved_prompts_never_come():
    expected = allocate([0.0, 0.0, 0.5, 0.4, 0.5, 0.3], BUDGET, floor=0.0, most=1.0)
    rng = np.random.default_rng(6)
    assert sum(systematic(expected, rng)[:2].sum() for _ in range(1_000)) == 0
