"""Groups and visits written out by hand, for the tests of single baselines."""

import numpy as np

from kaestat import Groups, Visits
from kaestat.history.fields import WEIGHTED_FIELDS

POWERS = ((1, 0), (2, 0), (1, 1), (1, 2), (2, 1), (2, 2))  # of the weight and the reward, in the weighted fields


def groups(*rows, weights=None, prompt_ids=None, padding=9.0, spare=0) -> Groups:
    """Ragged rows of rewards as `Groups`; what stands in the padding must not matter. ``spare`` adds columns of it."""
    width = max(len(row) for row in rows) + spare
    mask = np.array([[g < len(row) for g in range(width)] for row in rows])
    reward = np.array([[*row, *[padding] * (width - len(row))] for row in rows], dtype=float)
    if weights is not None:
        weights = np.array([[*row, *[abs(padding)] * (width - len(row))] for row in weights], dtype=float)
    return Groups(reward=reward, mask=None if mask.all() else mask, weight=weights, prompt_ids=prompt_ids)


def visits(*prompts, divergence=None, padding="right") -> Visits:
    """One list of (lag, rewards) or (lag, rewards, weights) per prompt, oldest first.

    The padding is on the right, on the left, or between the visits; a lag in it means nothing.
    """
    depth = max(len(past) for past in prompts)
    shape = len(prompts), 2 * depth + 1 if padding == "between" else depth
    weighted = any(len(visit) == 3 for past in prompts for visit in past)
    names = ("lag", "count", "total", "total_sq", *(WEIGHTED_FIELDS if weighted else ()))
    columns = {name: np.zeros(shape) for name in names} | {"lag": np.arange(shape[1]) % 5 + np.zeros(shape)}
    columns |= {} if divergence is None else {"divergence": np.zeros(shape)}
    for p, past in enumerate(prompts):
        for v, (lag, rewards, *weights) in enumerate(past):
            at = {"right": v, "left": shape[1] - len(past) + v, "between": 2 * v + 1}[padding]
            z, w = np.array(rewards, dtype=float), np.array(weights[0] if weights else [1.0] * len(rewards))
            sums = (lag, len(z), z.sum(), (z**2).sum(), *((w**i * z**j).sum() for i, j in POWERS))
            for name, value in zip(names, sums, strict=False):
                columns[name][p, at] = value
            if divergence is not None:
                columns["divergence"][p, at] = divergence[p][v]
    return Visits(**columns)


NO_PAST = visits([])
