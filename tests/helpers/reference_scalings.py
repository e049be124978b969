"""Slow, obvious versions of the advantage scalings, on plain lists of lists."""

import math
from statistics import fmean, variance


def whitened(advantages):
    """REINFORCE++: over every completion of the step, variance with ddof 1 and 1e-8 added."""
    flat = [a for row in advantages for a in row]
    if len(flat) < 2:
        return advantages
    mean, scale = fmean(flat), math.sqrt(variance(flat) + 1e-8)
    return [[(a - mean) / scale for a in row] for row in advantages]


def over_group_std(advantages, rewards, epsilon=1e-6):
    """GRPO: each group over its standard deviation (ddof 1) plus epsilon; lone completions as they are."""
    return [
        [a / (math.sqrt(variance(r)) + epsilon) for a in row] if len(r) > 1 else row
        for row, r in zip(advantages, rewards, strict=True)
    ]


def over_reward_std(advantages, rewards, epsilon=1e-4):
    """TRL's scale_rewards="batch": over the standard deviation (ddof 1) of all rewards plus epsilon."""
    flat = [z for row in rewards for z in row]
    if len(flat) < 2:
        return advantages
    return [[a / (math.sqrt(variance(flat)) + epsilon) for a in row] for row in advantages]


def gpg_rescaled(advantages, rewards):
    """GPG: times B / (B - M), M the completions in groups whose rewards are all equal."""
    mixed = sum(len(row) for row in rewards if max(row) > min(row))
    total = sum(len(row) for row in rewards)
    return [[a * total / mixed if mixed else a for a in row] for row in advantages]
