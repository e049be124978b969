"""The paper's diagnostic of the value MSE (appendix, "Value-estimation MSE diagnostic"), to the letter.

The first N_oracle completions of the target pool give each prompt's target, their mean reward Ṽ. In each of R repeats
a group of G is drawn without replacement from the rest, and one from the pool of each past step; every estimator
assigns its leave-one-out values. The MSE is the mean of ``(V_g - Ṽ)^2`` over repeats and completions, then prompts.

Ṽ is not the truth: its own noise adds ``Var(Z) / N_oracle`` to every entry. The debiased figure takes off the unbiased
estimate of it, the sample variance of the prompt's oracle rewards over N_oracle. As the oracle pool is disjoint from
all others, it estimates ``E (V_g - V)^2`` without bias, whatever the rewards' range. Differences of methods are the
same either way.

Standard errors are over prompts: a prompt's pools make one cluster, however many repeats are drawn from them. Baselines
that look at other prompts (REINFORCE++, James-Stein, EBPO, KAE-EB) couple these clusters. For REINFORCE++ the standard
error is right to first order all the same: its MSE is the mean of ``(m - V_b)^2`` about the batch mean m plus
little, which as a function of m is flat at its minimum, so the noise of m does not enter. For the others it holds what
they took from the other prompts fixed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from llm_experiments.diagnose.comparisons import DIFFERENCE_COLUMNS, PromptErrors
from llm_experiments.diagnose.draws import Drawing
from llm_experiments.diagnose.estimators import REFERENCES, Estimator, plain_estimators
from llm_experiments.diagnose.pool_rewards import PoolRewards

PURPOSE = 1  # of the random numbers
VALUE_COLUMNS = ["step", "method", "mse", "se", "mse_debiased", "se_debiased", "n_prompts"]
DEBIASED_RATIO = ["ratio_debiased", "ratio_debiased_low", "ratio_debiased_high"]
VALUE_DIFFERENCE_COLUMNS = [*DIFFERENCE_COLUMNS[:-1], *DEBIASED_RATIO, DIFFERENCE_COLUMNS[-1]]


@dataclass(frozen=True, eq=False)
class ValueErrors:
    """What the diagnostic found at one target step.

    errors: The paper's figure.
    oracle_noise (ndarray, shape (P,)): Unbiased estimate of the variance of each prompt's oracle mean.
    """

    errors: PromptErrors
    oracle_noise: np.ndarray

    @property
    def debiased(self) -> PromptErrors:
        """The errors against the true value."""
        return self.errors.less(self.oracle_noise)

    def table(self) -> pd.DataFrame:
        """``step, method, mse, se, mse_debiased, se_debiased, n_prompts``."""
        debiased = self.debiased.table()
        frame = self.errors.table().assign(mse_debiased=debiased["mse"], se_debiased=debiased["se"])
        return frame[VALUE_COLUMNS]

    def differences(self, *, references: Sequence[str] = REFERENCES, n_boot: int, seed: int) -> pd.DataFrame:
        """Paired differences as in `PromptErrors.differences`, and the ratio of the debiased MSEs beside the other."""
        frame = self.errors.differences(references, n_boot=n_boot, seed=seed)
        debiased = self.debiased.differences(references, n_boot=n_boot, seed=seed)
        ratios = ("ratio", "ratio_low", "ratio_high")
        frame = frame.assign(**{name: debiased[ratio] for name, ratio in zip(DEBIASED_RATIO, ratios, strict=True)})
        return frame[VALUE_DIFFERENCE_COLUMNS]


def value_errors(
    pool: PoolRewards,
    estimators: Sequence[Estimator] | None = None,
    *,
    n_oracle: int,
    group_size: int,
    repeats: int,
    seed: int,
) -> ValueErrors:
    """Run the diagnostic at one target step.

    estimators: They share the draws. None takes every method of the library that applies.
    n_oracle, group_size, repeats: N_oracle (at least 2), G (at least 2) and R.
    """
    estimators = plain_estimators() if estimators is None else list(estimators)
    drawing = Drawing(group_size, first=n_oracle, seed=seed, purpose=PURPOSE)
    oracle = pool.target[:, :n_oracle]
    target = oracle.mean(axis=1)[:, None]
    total = np.zeros((pool.n_prompts, len(estimators)))
    for drawn in drawing.chunks(pool, repeats):
        for column, estimator in enumerate(estimators):
            total[:, column] += ((estimator.values(drawn) - target) ** 2).mean(axis=-1).sum(axis=0)
    errors = PromptErrors(pool.step, tuple(e.name for e in estimators), total / repeats)
    return ValueErrors(errors, oracle.var(axis=1, ddof=1) / n_oracle)
