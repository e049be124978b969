"""KAE's value MSE against kernel and bandwidth, with bootstrap bands over prompts (the paper's sensitivity figure)."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kaestat.core.bootstrap import cluster_bootstrap, mean_with_interval
from llm_experiments.diagnose.estimators import make_estimator
from llm_experiments.diagnose.pool_rewards import PoolRewards
from llm_experiments.diagnose.value_mse import value_errors

LEVELS = ("grpo", "reinforce++")  # know no bandwidth


def value_sensitivity(
    pool: PoolRewards,
    *,
    kernels: Sequence[str],
    bandwidths: Sequence[float],
    n_oracle: int,
    group_size: int,
    repeats: int,
    n_boot: int,
    seed: int,
) -> pd.DataFrame:
    """The value diagnostic of KAE at every kernel and bandwidth, on the same draws.

    pool: Its history truncates every kernel: a bandwidth beyond H steps only evens out the weights.
    bandwidths: In steps.
    n_oracle, group_size, repeats, seed: As in `value_errors`.
    n_boot: Bootstrap draws of prompts behind the 95 % bands; 0 gives normal ones.
    Returns: ``step, method, kernel, bandwidth, mse, se, ci_low, ci_high, mse_debiased, ci_low_debiased,
        ci_high_debiased, n_prompts``; GRPO and REINFORCE++ at the end, with empty kernel and NaN as bandwidth.
    """
    settings = [(kernel, float(bandwidth)) for kernel in kernels for bandwidth in bandwidths]
    names = [f"kae:kernel={kernel},bandwidth={bandwidth!r}" for kernel, bandwidth in settings]
    found = value_errors(
        pool,
        [make_estimator(name) for name in (*names, *LEVELS)],
        n_oracle=n_oracle,
        group_size=group_size,
        repeats=repeats,
        seed=seed,
    )
    summaries = []
    for errors in (found.errors, found.debiased):
        draws = cluster_bootstrap(errors.per_prompt, n_boot=n_boot, seed=seed)
        summaries.append(mean_with_interval(errors.per_prompt, draws))
    (mse, se, low, high), (debiased, _, debiased_low, debiased_high) = summaries
    return pd.DataFrame(
        {
            "step": pool.step,
            "method": ["kae"] * len(settings) + list(LEVELS),
            "kernel": [kernel for kernel, _ in settings] + [""] * len(LEVELS),
            "bandwidth": [bandwidth for _, bandwidth in settings] + [np.nan] * len(LEVELS),
            "mse": mse,
            "se": se,
            "ci_low": low,
            "ci_high": high,
            "mse_debiased": debiased,
            "ci_low_debiased": debiased_low,
            "ci_high_debiased": debiased_high,
            "n_prompts": pool.n_prompts,
        }
    )
