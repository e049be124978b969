"""Slow, obvious versions of every data-driven selector: plain loops over single completions, nothing from the library.

A log is a list of prompts; a prompt is a list of ``(time, rewards)``, oldest first.
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean, variance

import numpy as np

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


def forward_cv_path(log, kernel, grid):
    return cv_path(log, kernel, grid, with_own=False)


def loo_cv_path(log, kernel, grid):
    return cv_path(log, kernel, grid, with_own=True)


def hat_matrix(prompt, kernel, b):
    """The smoother of one prompt's completions, its own included: (completions, completions)."""
    k = KERNELS[kernel]
    times = [time for time, rewards in prompt for _ in rewards]
    hat = np.array([[k((t - s) / b) if s <= t else 0.0 for s in times] for t in times])
    return hat / hat.sum(axis=1, keepdims=True)


def residuals_and_trace(log, kernel, b):
    residual, trace, size = 0.0, 0.0, 0
    for prompt in log:
        z = np.array([z for _, rewards in prompt for z in rewards])
        hat = hat_matrix(prompt, kernel, b)
        residual += float(np.sum((z - hat @ z) ** 2))
        trace += float(np.trace(hat))
        size += len(z)
    return residual, trace, size


def gcv_path(log, kernel, grid):
    parts = [residuals_and_trace(log, kernel, b) for b in grid]
    return [residual / n / (1 - trace / n) ** 2 for residual, trace, n in parts]


def aicc_path(log, kernel, grid):
    parts = [residuals_and_trace(log, kernel, b) for b in grid]
    return [
        math.log(residual / n) + 1 + 2 * (trace + 1) / (n - trace - 2) if n > trace + 2 else math.inf
        for residual, trace, n in parts
    ]


def plug_in_moments(log):
    """(L^2, s^2, completions per step) from lists of all pairs of visits up to 10 apart."""
    lone = all(len(rewards) == 1 for prompt in log for _, rewards in prompt)
    x, y, spread, halves, later, elapsed = [], [], [], [], 0, 0.0
    for prompt in log:
        spread += [variance(rewards) for _, rewards in prompt if len(rewards) > 1]
        halves += [((r[0] - q[0]) ** 2 / 2, (t - s) ** 2 / 2) for (s, q), (t, r) in pairwise(prompt)]
        later += sum(len(rewards) for _, rewards in prompt[1:])
        elapsed += prompt[-1][0] - prompt[0][0]
        for i in range(len(prompt)):
            for j in range(max(i - 10, 0), i):
                (t, now), (s, past) = prompt[i], prompt[j]
                if lone and 1 <= j <= i - 2:
                    (t1, now1), (s1, past1) = prompt[i - 1], prompt[j - 1]
                    x.append((t - s) * (t1 - s1))
                    y.append((now[0] - past[0]) * (now1[0] - past1[0]))
                elif len(now) > 1 and len(past) > 1:
                    x.append((t - s) ** 2)
                    y.append((fmean(now) - fmean(past)) ** 2 - variance(now) / len(now) - variance(past) / len(past))
    drift = np.dot(x, y) / np.dot(x, x)
    if lone:
        spread = [half - max(drift, 0.0) * share for half, share in halves]
    return drift, fmean(spread), later / elapsed


def lepski_path(log, kernel, grid):
    """Goldenshluger-Lepski with the full covariance of all pairs of estimates."""
    n_visits = sum(len(prompt) for prompt in log)
    distance, noise, own = (np.zeros((len(grid), len(grid))) for _ in range(3))
    for prompt in log:
        z = np.array([z for _, rewards in prompt for z in rewards])
        first = np.cumsum([0] + [len(rewards) for _, rewards in prompt[:-1]])  # a visit's completions share a row
        hats = [hat_matrix(prompt, kernel, b)[first] for b in grid]
        steps = [(fmean(r) - fmean(q)) ** 2 / 2 for (_, q), (_, r) in pairwise(prompt) if len(r) == 1]
        by_differences = fmean(steps) if steps else 0.0
        spread = np.array(
            [variance(rewards) if len(rewards) > 1 else by_differences for _, rewards in prompt for _ in rewards]
        )
        for b in range(len(grid)):
            for c in range(len(grid)):
                difference = hats[b] - hats[c]
                distance[b, c] += np.sum((difference @ z) ** 2) / n_visits
                noise[b, c] += np.sum(difference**2 @ spread) / n_visits
            own[b, b] += np.sum(hats[b] ** 2 @ spread) / n_visits
    return [max([0.0] + [distance[b, c] - noise[b, c] for c in range(b)]) + own[b, b] for b in range(len(grid))]


def forward_losses(log, kernel, b):
    """Squared errors of the one-step-ahead predictions of all visit means."""
    losses = []
    for prompt in log:
        for i in range(1, len(prompt)):
            value = kae(prompt, i, None, kernel, b, with_own=False)
            value = fmean(prompt[i - 1][1]) if value is None else value
            losses.append((fmean(prompt[i][1]) - value) ** 2)
    return losses


def aggregated_path(log, kernel, grid):
    pairs = [rewards for prompt in log for _, rewards in prompt[1:]]
    noise = fmean(variance(rewards) / len(rewards) if len(rewards) > 1 else 0.0 for rewards in pairs)
    return [fmean(forward_losses(log, kernel, b)) - noise for b in grid]


def aggregated_shares(log, kernel, grid, learning_rate):
    shares = [math.exp(-learning_rate * math.fsum(forward_losses(log, kernel, b))) for b in grid]
    return [share / math.fsum(shares) for share in shares]


PATHS = {
    "forward_cv": forward_cv_path,
    "loo_cv": loo_cv_path,
    "gcv": gcv_path,
    "aicc": aicc_path,
    "lepski": lepski_path,
    "aggregated": aggregated_path,
}
