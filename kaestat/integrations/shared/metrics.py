"""The metrics of a step in every adapter: the quality of the baseline, and the past behind it."""

import numpy as np

from kaestat.baselines.kernel_mean import KernelBaseline
from kaestat.core.visit_error import unbiased_error
from kaestat.estimator.reach import effective_history
from kaestat.estimator.step import StepRecord

ZERO = 1e-6  # advantages this small are rounding: trainers hold them in float32


def step_metrics(record: StepRecord | None) -> dict[str, float]:
    """The metrics of a step from its record, without those that have no data; none without completions.

    - ``error``: unbiased estimate of the mean squared error of the values around the prompts' true values
      (`unbiased_error`), averaged over rows with two completions or more.
    - ``squared_error``: ``mean_g (Z_g - V_g)^2``, averaged over all rows: the reward variance plus the error.
    - ``nonzero_advantages``: share of completions whose advantage is not 0.
    - ``dead_groups``: share of rows with two completions or more whose rewards are all equal.
    - ``gradient_noise``, with weights W and no value that contains its own reward: ``mean W_g (Z_g - V_g)^2``.
    - With a history ``known_prompts``, share of rows with a visit in reach, and ``past_completions``, their mean number
      of completions; for kernel methods ``effective_history``, the same with each weighted by ``K(lag / b) / K(0)``.
    """
    if record is None:
        return {}
    baseline, groups, visits = record.baseline, record.groups, record.visits
    present, count = groups.present, groups.count[:, 0]
    error = groups.reward - record.values
    squares = error**2 if groups.mask is None else np.where(groups.mask, error, 0.0) ** 2
    loss = squares.sum(axis=1) / count
    advantages = record.advantages if groups.mask is None else record.advantages[groups.mask]
    found = {"squared_error": float(loss.mean()), "nonzero_advantages": float((np.abs(advantages) > ZERO).mean())}
    own = np.asarray(baseline.own_derivative(groups, visits, step=record.step, carry=record.carry), dtype=float)
    several = count > 1
    if several.any():
        own_mean, mean = ((present * each).sum(axis=1) / count for each in (own, groups.reward))
        variance = (present * (groups.reward - mean[:, None]) ** 2).sum(axis=1) / np.maximum(count - 1, 1)
        alike = ((groups.reward == groups.reward[:, :1]) | (present == 0)).all(axis=1)
        found["error"] = float(unbiased_error(loss, own_mean, variance)[several].mean())
        found["dead_groups"] = float(alike[several].mean())
    if groups.weight is not None and not np.any(present * own):
        noise = np.where(present > 0, groups.weight * error**2, 0.0)
        found["gradient_noise"] = float(noise.sum() / count.sum())
    if baseline.horizon > 0:
        completions = visits.count.sum(axis=-1)
        found |= {"known_prompts": float((completions > 0).mean()), "past_completions": float(completions.mean())}
    if isinstance(baseline, KernelBaseline):
        found["effective_history"] = float(effective_history(baseline, groups, visits, record.step))
    return found
