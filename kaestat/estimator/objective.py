"""Objectives as functions of success rates: advantages times the objective's slope at the past rate."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.kernel_mean import KernelBaseline
from kaestat.baselines.published.bnpo import Bnpo
from kaestat.core.arrays import Groups, Visits
from kaestat.history.fields import WEIGHTED_FIELDS

OBJECTIVES = ("mean", "log", "pass@K", "arcsin", "bnpo")
Slope = Callable[[np.ndarray], np.ndarray]  # of rates strictly between 0 and 1, shape (P, 1)


def objective_slope(objective: str) -> Slope | None:
    """Derivative ``f'(V)`` of an objective ``sum_x f(V_x)`` in a success rate; None for the mean (derivative 1).

    ==========  =============================  ====================================================================
    objective   f(V)                           published form, which divides by rates of the group itself
    ==========  =============================  ====================================================================
    mean        V                              ``dr_grpo``, ``rloo``
    log         log V                          ``maxrl`` (Tajwar et al., 2026)
    pass@K      1 - (1 - V)^K                  ``grpo_passk`` for the whole group (Tang et al., 2025)
    arcsin      2 arcsin(sqrt(V))              ``grpo``: f' is one over the standard deviation of a reward
    bnpo        integral of one over density   ``bnpo`` (Xiao et al., 2025)
    ==========  =============================  ====================================================================

    Raises a ValueError if the name is unknown, or K is not a number from 1 to 1,000,000, and a TypeError if it is not a
    string.
    """
    if not isinstance(objective, str):
        raise TypeError(f"objective must be a name, got {type(objective).__name__}.")
    if objective == "mean":
        return None
    if objective in _SLOPES:
        return _SLOPES[objective]
    k = re.fullmatch(r"pass@([1-9][0-9]{0,6})", objective)
    if k is None or int(k[1]) > MOST_TRIES:
        raise ValueError(f"objective: unknown {objective!r}; choose one of {', '.join(OBJECTIVES)}, such as pass@8.")
    return partial(_of_any_success, tries=int(k[1]))


def check_objective(objective: str, method: str, baseline: Baseline) -> None:
    """Raise a ValueError or TypeError unless the objective is known and the baseline has a past for rates."""
    if objective_slope(objective) is not None and baseline.horizon == 0:
        raise ValueError(
            f"objective: method {method!r} keeps no history to take success rates from; take one that does, such as "
            "'kae_eb', or the published form: maxrl, bnpo, grpo, grpo_passk."
        )


def past_rates(baseline: Baseline, groups: Groups, visits: Visits, step: int, carry: Any) -> np.ndarray:
    """Success rate of each prompt from its past alone, strictly between 0 and 1, shape (P, 1).

    The rate combines the baseline's value v from the past alone with one pseudo-completion at m: ``V = (n v + m) / (n +
    1)``, n the effective completions of the past (`Baseline.effective_completions`). Here m is the mean over the step's
    prompts of their past rates, with half a success and half a failure added. A prompt without data has V = m, and a
    slope becomes large only with evidence. Weights of completions do not matter: the rate is unweighted. A ValueError
    if a current reward is below 0 or above 1.
    """
    if bool(((groups.reward < 0) | (groups.reward > 1))[groups.present > 0].any()):
        raise ValueError(
            "rewards: an objective other than the mean treats them as successes, so they must lie between 0 and 1; "
            "shift and scale them."
        )
    nobody = replace(groups, reward=np.zeros_like(groups.reward[:, :1]), mask=groups.present[:, :1] < 0, weight=None)
    plain = replace(visits, **dict.fromkeys(WEIGHTED_FIELDS))
    count, total = (np.sum(column, axis=-1) for column in (plain.count, plain.total))
    if isinstance(baseline, KernelBaseline) and (count > 0).any():
        baseline = baseline.with_population(float(np.mean(total[count > 0] / count[count > 0])))
    served = baseline.serve(nobody, plain, step=step, carry=carry)
    size = served.settled.effective_completions(nobody, plain, step=step, carry=carry)
    size = np.where(count[:, None] > 0, size, 0.0)  # the count of a prior is not a past
    value, known = np.clip(served.values, 0.0, 1.0), size > 0
    mean = (np.sum(value, where=known) + 0.5) / (np.sum(known) + 1)
    return (size * value + mean) / (size + 1)


def _of_any_success(rate: np.ndarray, tries: int) -> np.ndarray:
    return tries * (1 - rate) ** (tries - 1)


def _of_density(rate: np.ndarray) -> np.ndarray:
    """One over the Beta density of `Bnpo`, fitted to the rates of the step."""
    groups = Groups(rate)
    return 1 / Bnpo().deviation(groups, Visits.empty(groups), step=0)


MOST_TRIES = 1_000_000
_SLOPES: dict[str, Slope] = {
    "log": lambda rate: 1 / rate,
    "arcsin": lambda rate: 1 / np.sqrt(rate * (1 - rate)),
    "bnpo": _of_density,
}
