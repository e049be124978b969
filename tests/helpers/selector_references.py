"""Slow, obvious versions of every data-driven selector: plain loops over single completions, nothing from the library.

A log is a list of prompts; a prompt is a list of ``(time, rewards)``, oldest first.
"""

import math
from functools import partial
from statistics import fmean, variance

from tests.helpers.references import KERNELS

Log = list[list[tuple[float, list[float]]]]


def kae(prompt, now, left_out, kernel, b, *, with_own=True):
    """Kernel mean of everything up to visit ``now``, single completions, the ``left_out``-th of its group missing.

    ``with_own=False`` leaves the whole current group out. None where nothing has weight.
    """
    k = KERNELS[kernel]
    time = prompt[now][0]
    weights, rewards = [], []
    for past_time, past_rewards in prompt[:now]:
        weights += [k((time - past_time) / b)] * len(past_rewards)
        rewards += past_rewards
    if with_own:
        rest = [z for g, z in enumerate(prompt[now][1]) if g != left_out]
        weights += [k(0.0)] * len(rest)
        rewards += rest
    mass = math.fsum(weights)
    return math.fsum(w * z for w, z in zip(weights, rewards, strict=True)) / mass if mass > 0 else None


def scored(log: Log):
    """(prompt, visit) pairs that are scored: with a past, of two completions or more if there are such."""
    pairs = [(prompt, i) for prompt in log for i in range(1, len(prompt))]
    several = [(prompt, i) for prompt, i in pairs if len(prompt[i][1]) > 1]
    return several or pairs


def cv_path(log: Log, kernel: str, grid, *, with_own: bool) -> list[float]:
    """Forward (``with_own=False``) or leave-one-out cross-validation."""
    path = []
    for b in grid:
        by_prompt = {}
        for prompt, i in scored(log):
            rewards = prompt[i][1]
            losses = []
            for g, z in enumerate(rewards):
                value = kae(prompt, i, g, kernel, b, with_own=with_own)
                value = fmean(prompt[i - 1][1]) if value is None else value
                losses.append((z - value) ** 2)
            noise = variance(rewards) if len(rewards) > 1 else 0.0
            by_prompt.setdefault(id(prompt), []).append(fmean(losses) - noise)
        path.append(fmean(fmean(losses) for losses in by_prompt.values()))
    return path


PATHS = {"forward_cv": partial(cv_path, with_own=False), "loo_cv": partial(cv_path, with_own=True)}
