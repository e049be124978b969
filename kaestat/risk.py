"""Predictive risk: the unbiased value MSE of any baseline, from the rewards of a run alone.

A leave-one-out value is independent of its own reward given the past, so ``E (Z - Vhat)^2 = Var(Z) + MSE(Vhat)``, and
``Var(Z)`` has the unbiased within-group estimate. For a baseline that contains its own reward with weight w,
``2 w Var(Z)`` is added back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kaestat.baselines.base import Baseline
from kaestat.inference import bootstrap_weights
from kaestat.registry import make_baseline, parse_method
from kaestat.replay import replay
from kaestat.reward_log import RewardLog

RISK_COLUMNS = ["method", "mse", "se", "ci_low", "ci_high", "vs_grpo", "n_prompts", "n_visits"]
DIFFERENCE_COLUMNS = [
    "method",
    "reference",
    "difference",
    "se",
    "ci_low",
    "ci_high",
    "ratio",
    "ratio_low",
    "ratio_high",
    "n_prompts",
    "n_visits",
]


def value_risk(
    log: RewardLog,
    methods: Sequence[str | Baseline],
    *,
    n_boot: int = 1000,
    seed: int = 0,
    min_visits: int = 1,
) -> pd.DataFrame:
    """Unbiased mean squared error of the values that each method would have assigned along the run.

    Parameters
    ----------
    log : RewardLog
        At least some visits must have two completions or more.
    methods : sequence of str or Baseline
        Names, specifications such as ``"kae:bandwidth=10,kernel=exponential"``, or baselines. As in the paper's
        Table 1, ``grpo`` and ``reinforce++`` enter in leave-one-out form.
    n_boot : int
        Bootstrap draws of prompts behind the 95 % percentile interval; 0 gives the normal interval instead.
    seed : int
        Seed of the bootstrap.
    min_visits : int
        Only visits with at least this many earlier ones of the same prompt count, for every method alike.

    Returns
    -------
    DataFrame
        One row per method, in the order given: ``method`` as given; ``mse`` averaged within prompts, then over
        prompts; ``se`` its standard error over prompts; ``ci_low, ci_high``; ``vs_grpo``, the ratio of ``mse`` to
        GRPO's; ``n_prompts`` and ``n_visits`` that entered.

    Raises
    ------
    ValueError
        If a method is unknown, no visit qualifies, or the log has one completion per visit throughout: then only
        differences between methods are identified (`risk_differences`).
    """
    per_prompt = [
        risk.per_prompt(absolute=True)
        for risk in _method_risks(log, [*methods, "grpo"], min_visits=min_visits, absolute=True)
    ]
    risks = np.stack([risk for risk, _ in per_prompt], axis=1)  # (prompts, methods + 1)
    n_visits = per_prompt[0][1]
    mean, se, low, high = _summary(risks, n_boot, seed)
    return pd.DataFrame(
        {
            "method": list(methods),
            "mse": mean[:-1],
            "se": se[:-1],
            "ci_low": low[:-1],
            "ci_high": high[:-1],
            "vs_grpo": mean[:-1] / mean[-1] if mean[-1] != 0 else np.nan,
            "n_prompts": len(risks),
            "n_visits": n_visits,
        },
        columns=RISK_COLUMNS,
    )
