"""The weight of bad completions relative to good ones, for the same prompt at the same step."""

import numpy as np

from kaestat.core.bootstrap import cluster_bootstrap, mean_with_interval
from kaestat.logs.reward_log import RewardLog


def weight_ratio(log: RewardLog, column: str, *, n_boot: int = 1000, seed: int = 0) -> tuple[float, float, float]:
    """Mean weight of completions below their visit's mean reward over that of those above it, with its interval.

    Hard prompts have more wrong answers, and often longer ones. So completions are compared within visits, as by Mantel
    and Haenszel (1959) for rates: with ``l`` completions below the mean of visit v and ``h`` above it, and sums of
    weights ``L_v, H_v``, the ratio is ``sum_v h L_v / (l + h) / sum_v l H_v / (l + h)``. The interval is for the
    logarithm, by a bootstrap of its linear part over prompts. NaN if no visit has both kinds, or one kind has no
    weight.
    """
    units, weight = log.prompt_units, log.completion_weights(column)
    deviation = units.reward - np.repeat(units.total / units.counts, units.counts)
    below, above = deviation < -_ROUNDING * np.abs(units.reward), deviation > _ROUNDING * np.abs(units.reward)
    fewer, more = (np.add.reduceat(kind.astype(float), units.first) for kind in (below, above))
    sums = [np.add.reduceat(weight * kind, units.first) for kind in (below, above)]
    both = (fewer > 0) & (more > 0)
    prompt, size = units.visit_prompt[both], (fewer + more)[both]
    per_prompt = np.stack(
        [
            np.bincount(prompt, weights=(other * total)[both] / size, minlength=len(log.prompts))
            for other, total in zip((more, fewer), sums, strict=True)
        ],
        axis=1,
    )
    mean = per_prompt.mean(axis=0)
    if not (mean > 0).all():
        return np.nan, np.nan, np.nan
    linear = np.log(mean[0] / mean[1]) + per_prompt[:, :1] / mean[0] - per_prompt[:, 1:] / mean[1]
    log_ratio, _, low, high = mean_with_interval(linear, cluster_bootstrap(linear, n_boot=n_boot, seed=seed))
    return float(np.exp(log_ratio[0])), float(np.exp(low[0])), float(np.exp(high[0]))


_ROUNDING = 1e-12
