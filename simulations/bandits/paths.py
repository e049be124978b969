"""Value paths: how the success probabilities of prompts move along a run.

Every path lives on the logit scale and starts from a Beta distribution of success rates. Arrays are (R, T, P):
replicates, steps, prompts.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import expit, logit

from simulations.harness import Streams

START_MEAN, START_WITHIN = 0.335, 0.105  # mean and E[p (1 - p)] of a real run's first epochs (Qwen2.5-Math-1.5B)


def value_paths(kind: str, streams: Streams, n_steps: int, n_prompts: int, *, scale: float = 0.13) -> np.ndarray:
    """Success probabilities of every prompt at every step.

    kind: One of ``PATHS``: ``static``; ``inverse_step`` (logits move by ``scale / t`` at step t, as under a 1/i
        learning rate); ``linear`` (by ``scale / 5`` per step); ``jump`` (once, by ``10 scale`` either way, at a random
        step); ``saturating`` (towards success, ever more slowly); ``random_walk`` (Gaussian steps of that standard
        deviation, .12-.15 per epoch in a real run).
    streams: Random numbers of the replicates.
    scale: Size of the movement, in logits.
    Returns ndarray, shape (R, T, P).
    """
    start = logit(start_values(streams, n_prompts))[:, None, :]
    return expit(start + PATHS[kind](streams, n_steps, n_prompts, scale))


def start_values(streams: Streams, n_prompts: int, name: str = "start") -> np.ndarray:
    """Beta-distributed success rates of mean `START_MEAN`, drawn under that name, shape (R, P)."""
    share = START_WITHIN / (START_MEAN * (1 - START_MEAN))
    size = share / (1 - share)
    drawn = streams.each(name, lambda rng: rng.beta(START_MEAN * size, (1 - START_MEAN) * size, n_prompts))
    return np.clip(drawn, 1e-9, 1 - 1e-9)


def _static(streams: Streams, n_steps: int, n_prompts: int, scale: float) -> np.ndarray:
    return np.zeros((1, n_steps, 1))


def _inverse_step(streams: Streams, n_steps: int, n_prompts: int, scale: float) -> np.ndarray:
    return scale * np.cumsum(np.append(0.0, 1 / np.arange(1, n_steps)))[None, :, None]


def _linear(streams: Streams, n_steps: int, n_prompts: int, scale: float) -> np.ndarray:
    return scale / 5 * np.arange(n_steps)[None, :, None]


def _jump(streams: Streams, n_steps: int, n_prompts: int, scale: float) -> np.ndarray:
    drawn = streams.uniform("jumps", 2, n_prompts)
    when, up = drawn[:, 0] * n_steps, drawn[:, 1] < 0.5
    jumped = np.arange(n_steps)[None, :, None] >= when[:, None, :]
    return 10 * scale * jumped * np.where(up, 1.0, -1.0)[:, None, :]


def _saturating(streams: Streams, n_steps: int, n_prompts: int, scale: float) -> np.ndarray:
    return 10 * scale * (1 - np.exp(-np.arange(n_steps) / (n_steps / 3)))[None, :, None]


def _random_walk(streams: Streams, n_steps: int, n_prompts: int, scale: float) -> np.ndarray:
    steps = scale * streams.normal("walk", n_steps, n_prompts)
    steps[:, 0] = 0
    return np.cumsum(steps, axis=1)


PATHS: dict[str, Callable[[Streams, int, int, float], np.ndarray]] = {
    "static": _static,
    "inverse_step": _inverse_step,
    "linear": _linear,
    "jump": _jump,
    "saturating": _saturating,
    "random_walk": _random_walk,
}
