"""How wrong each baseline's values were along a run, from the run's own rewards and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

import kaestat
from kaestat.logs.risk import risk_baseline, visit_risk

WINDOWS = 4  # parts of a run
REFERENCE = "reinforce++"  # leave-one-out batch mean: always there to compare with
COLUMNS = ["baseline", "from_step", "to_step", "mse", "mse_se", "less_reference", "less_reference_se", "n_visits"]


def value_errors(log: kaestat.RewardLog, baselines: Sequence[str], *, windows: int = WINDOWS) -> pd.DataFrame:
    """Unbiased value error of baselines over parts of a run, all of them on the same rewards.

    Visits count whose prompt was seen before; the errors of a prompt's visits in a window are averaged, then those of
    prompts. ``grpo`` and ``reinforce++`` enter in their leave-one-out form, as in the paper's Table 1.

    Parameters
    ----------
    log : RewardLog
    baselines : sequence of str
        Methods of `kaestat`.
    windows : int
        Parts of equal length.

    Returns
    -------
    DataFrame
        ``baseline, from_step, to_step``; the mean squared error ``mse`` with its standard error over prompts, NaN with
        one completion per visit, where it is not identified; ``less_reference``, its difference from that of the batch
        mean, identified in either case, likewise; and ``n_visits`` that counted. No rows for windows without any.
    """
    units = log.prompt_units
    several = bool((units.counts > 1).any())
    eligible = (units.earlier >= 1) & ((units.counts > 1) if several else True)
    risks = {name: visit_risk(log, risk_baseline(name), absolute=several) for name in [*baselines, REFERENCE]}
    edges = np.linspace(0, int(units.visit_step.max()) + 1, windows + 1).round().astype(int)
    rows = []
    for start, stop in pairwise(edges.tolist()):
        chosen = eligible & (units.visit_step >= start) & (units.visit_step < stop)
        if not chosen.any():
            continue
        prompts = units.visit_prompt[chosen]
        for name in baselines:
            mse = _mean_over_prompts(risks[name][chosen], prompts) if several else (np.nan, np.nan)
            less = _mean_over_prompts((risks[name] - risks[REFERENCE])[chosen], prompts)
            rows.append((name, start, stop, *mse, *less, int(chosen.sum())))
    return pd.DataFrame(rows, columns=COLUMNS)


def _mean_over_prompts(risk: np.ndarray, prompts: np.ndarray) -> tuple[float, float]:
    """Mean of the prompts' means, and its standard error; NaN at G = 1 for a baseline with its own reward inside."""
    means = pd.Series(risk).groupby(prompts).mean()
    se = means.std(ddof=1) / np.sqrt(len(means)) if len(means) > 1 else np.nan
    return float(means.mean(skipna=False)), float(se)
