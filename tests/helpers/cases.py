"""Groups and visits written out by hand, for the tests of single baselines."""

import numpy as np

from kaestat import Groups, Visits
from kaestat.history.fields import WEIGHTED_FIELDS


def groups(*rows, weights=None, prompt_ids=None) -> Groups:
    """Ragged rows of rewards as `Groups`; the padding holds 9s, which must not matter."""
    width = max(len(row) for row in rows)
    mask = np.array([[g < len(row) for g in range(width)] for row in rows])
    reward = np.array([[*row, *[9.0] * (width - len(row))] for row in rows], dtype=float)
    if weights is not None:
        weights = np.array([[*row, *[9.0] * (width - len(row))] for row in weights], dtype=float)
    return Groups(reward=reward, mask=None if mask.all() else mask, weight=weights, prompt_ids=prompt_ids)


def visits(*prompts, divergence=None) -> Visits:
    """One list of (lag, rewards) or (lag, rewards, weights) per prompt, oldest first."""
    depth = max(len(past) for past in prompts)
    columns = {name: np.zeros((len(prompts), depth)) for name in ("lag", "count", "total", "total_sq")}
    extra = {name: np.zeros((len(prompts), depth)) for name in WEIGHTED_FIELDS}
    weighted = any(len(visit) == 3 for past in prompts for visit in past)
    for p, past in enumerate(prompts):
        for v, (lag, rewards, *weights) in enumerate(past):
            z, w = np.array(rewards, dtype=float), np.array(weights[0] if weights else [1.0] * len(rewards))
            for name, value in zip(columns, (lag, len(z), z.sum(), (z**2).sum()), strict=True):
                columns[name][p, v] = value
            powers = ((1, 0), (2, 0), (1, 1), (1, 2), (2, 1), (2, 2))
            for name, (i, j) in zip(extra, powers, strict=True):
                extra[name][p, v] = (w**i * z**j).sum()
    divergence = None if divergence is None else np.array(divergence, dtype=float)
    return Visits(**columns, **(extra if weighted else {}), divergence=divergence)


NO_PAST = visits([])
