"""The paper's diagnostic of the gradient MSE (appendix, "Gradient-evaluation diagnostic"), from Gram matrices.

The full target pool of N completions gives each prompt's reference value Ṽ, its mean reward, and reference gradient
``- mean_h (Z_h - Ṽ) s_h`` of the scores s_h. In each of M repeats G completions are drawn with replacement from this
pool and from the pool of each past step; with advantages ``A_g = Z_g - V_g``, not standardised, the gradient sample is
``- mean_g A_g s_g``. The error is the squared distance of the two, averaged over repeats, then prompts.

The pool stands for the policy here, but its mean score is not 0 as the policy's is. A baseline that is off by a
constant therefore costs more than it should, by the squared norm of the mean score, some ``E W / N``: small pools
work against REINFORCE++. `llm_experiments.diagnose.gradient_mse_debiased` is free of it.

``oracle`` and ``best_baseline`` are floors, no estimators: the pool's mean reward and its ``sum W Z / sum W``.
"""

from collections.abc import Sequence

import numpy as np

from llm_experiments.diagnose.comparisons import PromptErrors
from llm_experiments.diagnose.draws import Drawing
from llm_experiments.diagnose.estimators import Estimator
from llm_experiments.diagnose.gradient_inputs import FLOORS, floor_values, prepared
from llm_experiments.diagnose.pool_rewards import PoolRewards
from llm_experiments.gradient.repeats import gradient_errors

PURPOSE = 2  # of the random numbers


def pooled_gradient_errors(
    pool: PoolRewards,
    gram: np.ndarray,
    estimators: Sequence[Estimator] | None = None,
    *,
    group_size: int,
    repeats: int,
    seed: int,
) -> PromptErrors:
    """Run the diagnostic at one target step.

    pool: With ``history_weight["exact"]`` where the score norms of the past completions are known.
    gram (ndarray, shape (P, N, N)): Inner products of the target pool's scores; the diagonal is the exact weight of
        each completion.
    estimators: They share the draws. None takes all plain ones, and the score-weighted ones whose weights are known.
    group_size, repeats: G (at least 2) and M.
    Returns: Of the estimators, then of `FLOORS`.
    Raises ValueError if the Gram matrices do not fit the pool, or an estimator lacks its weights.
    """
    pool, estimators = prepared(pool, gram, estimators, group_size=group_size)
    reference = (pool.target - pool.target.mean(axis=1, keepdims=True)) / pool.n_target
    floors = floor_values(pool)
    total = np.zeros((pool.n_prompts, len(estimators) + len(FLOORS)))
    drawing = Drawing(group_size, replace=True, seed=seed, purpose=PURPOSE)
    for drawn in drawing.chunks(pool, repeats):
        values = [estimator.values(drawn) for estimator in estimators]
        values += [np.broadcast_to(floors[name], drawn.indices.shape) for name in FLOORS]
        advantages = drawn.reward - np.stack(values)
        for prompt in range(pool.n_prompts):
            errors = gradient_errors(
                gram[prompt], reference[prompt], drawn.indices[:, prompt], advantages[:, :, prompt]
            )
            total[prompt] += errors.sum(axis=-1)
    names = (*(estimator.name for estimator in estimators), *FLOORS)
    return PromptErrors(pool.step, names, total / repeats)
