"""Logs as people have them, made: sparse epochs, one epoch, other rewards, several rewards, one completion."""

import numpy as np

from kaestat import RewardLog
from kaestat.datasets import simulated_run


def epochs(*, n_prompts=1000, n_epochs=8, steps=100, group_size=8, walk=0.3, seed=0):
    """Each epoch takes ``steps`` steps and passes through all prompts in the same order; logits are random walks."""
    rng = np.random.default_rng(seed)
    logit = rng.normal(-0.5, 2.0, n_prompts) + np.cumsum(rng.normal(0.05, walk, (n_epochs, n_prompts)), axis=0)
    reward = rng.random((n_epochs, n_prompts, group_size)) < 1 / (1 + np.exp(-logit))[..., None]
    at = np.arange(n_prompts) * steps // n_prompts
    step = (np.arange(n_epochs)[:, None] * steps + at)[..., None]
    prompt = np.arange(n_prompts)[:, None]
    columns = [np.broadcast_to(column, reward.shape).reshape(-1) for column in (prompt, step, reward)]
    return RewardLog(columns[0], columns[1], columns[2].astype(float))


def relabelled(log, *, scale=1.0, shift=0.0, steps=lambda step: step):
    """The same log with other numbers for rewards and steps."""
    frame = log.frame
    step, reward = steps(frame["step"].to_numpy()), shift + scale * frame["reward"].to_numpy()
    return RewardLog(frame["prompt"], step, reward, time_axis=log.time_axis)


def several_rewards(log, seed=1):
    """Accuracy, plus a format reward of 0.2 that most completions get, less a small penalty of length."""
    rng, frame = np.random.default_rng(seed), log.frame
    extra = 0.2 * (rng.random(len(frame)) < 0.8) - 0.01 * rng.integers(0, 20, len(frame))
    return RewardLog(frame["prompt"], frame["step"], frame["reward"].to_numpy() + extra, time_axis=log.time_axis)


def small_run(**sizes):
    """The simulated run with training steps as its time axis."""
    frame = simulated_run(**{"n_prompts": 100, "n_epochs": 15, **sizes}).log.frame
    return RewardLog(frame["prompt"], frame["step"], frame["reward"])
