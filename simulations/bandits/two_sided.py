"""What a history could tell of a late completion: all that has arrived, sampled before it or after it."""

from __future__ import annotations

import numpy as np

from kaestat import Groups, Visits
from kaestat.baselines import Baseline
from simulations.bandits.stale_policy import Sampled


def two_sided_values(baseline: Baseline, sampled: Sampled) -> np.ndarray:
    """Values of completions at their arrival, from all others of the prompt that are there; shape (T, P, G).

    Rewards are weighed by the distance of their versions, whichever is the newer: what was sampled after a completion
    and has arrived before it, or with it, knows nothing of its reward. NaN for what arrives after the last step.

    Parameters
    ----------
    baseline : Baseline
        Computes from visits and their lags alone, and does not pool prompts: here each of a prompt's versions is one.
    sampled : Sampled
    """
    n_steps, n_prompts, _ = sampled.answer.shape
    count, total = np.zeros((2, n_prompts, n_steps))
    steps, reward = np.arange(n_steps), sampled.reward
    values = np.full(reward.shape, np.nan)
    for step in range(n_steps):
        arrived = sampled.used == step
        count += arrived.sum(axis=2).T
        total += (arrived * reward).sum(axis=2).T
        version, prompt = np.nonzero(arrived.any(axis=2))
        if not len(version):
            continue
        own = arrived[version, prompt]
        row = np.arange(len(version))
        others, carried = count[prompt], total[prompt]
        others[row, version] -= own.sum(axis=1)
        carried[row, version] -= (own * reward[version, prompt]).sum(axis=1)
        visits = Visits.of_successes(np.abs(version[:, None] - steps) * 1.0, carried, others)
        groups = Groups(reward[version, prompt], mask=own)
        found = baseline.values(groups, visits, step=step)
        values[version, prompt] = np.where(own, found, values[version, prompt])
    return values
