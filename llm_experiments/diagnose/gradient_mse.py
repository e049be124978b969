"""Gradient MSE from Gram matrices: the paper's diagnostic, and one without its bias.

**The paper's** (appendix, "Gradient-evaluation diagnostic"): the full target pool of N completions gives each prompt's
reference value Ṽ, its mean reward, and reference gradient ``- mean_h (Z_h - Ṽ) s_h`` of the scores s_h. In each of M
repeats G completions are drawn with replacement from this pool and from the pool of each past step; with advantages
``A_g = Z_g - V_g``, not standardised, the gradient sample is ``- mean_g A_g s_g``. The error is the squared distance of
the two, averaged over repeats, then prompts.

The pool stands for the policy here, but its mean score is not 0 as the policy's is. A baseline that is off by a
constant therefore costs more than it should, by the squared norm of the mean score, some ``E W / N``: small pools
work against REINFORCE++. Its floors ``oracle`` and ``best_baseline``, no estimators, are the pool's mean reward and its
``sum W Z / sum W``.

**Debiased**: what that tends to as its pools grow, from small ones. Write ``g = - E[Z s]`` for a prompt's true gradient
and ``ghat = - mean_g A_g s_g`` for that of a group. Each part of

    E ||ghat - g||^2 = E ||ghat||^2 - 2 E <ghat, g> + ||g||^2

is estimated without bias. Groups are drawn *without* replacement, so that each is, over all pools, a group of G
independent completions of the policy, as in training.

``||ghat||^2``
    is itself.
``<ghat, g>``
    The N - G completions left over are independent of the group, and their sample covariance of reward and score,
    ``gtilde = - sum_h (Z_h - mean Z) s_h / (N - G - 1)``, has mean g (as E s = 0). So ``<ghat, gtilde>`` is unbiased,
    whether ghat is or not.
``||g||^2``
    is the squared norm of that covariance: its U-statistic over the whole pool (of order 4; Song et al., 2012, for
    kernel matrices). It is one number for each prompt, so differences of methods do not see it.

This is the distance to a reference from the other half of the pool less the reference's own variance, with the group's
whole complement for the other half. Averaged over pools the result is the MSE of the gradient of a single prompt,
whatever the pool size. An estimate for one prompt may be negative.

``oracle`` is the floor with the true value, ``(E[W (Z - V)^2] - ||g||^2) / G``, by U-statistics too.
``best_baseline`` is that with b* in place of V: a ratio of means, for which the jackknife leaves a bias of order
1/N^2, the one approximation here.
"""

from collections.abc import Sequence

import numpy as np

from llm_experiments.diagnose.comparisons import PromptErrors
from llm_experiments.diagnose.draws import Drawing, DrawnGroups
from llm_experiments.diagnose.estimators import Estimator, plain_estimators, weighted_estimators
from llm_experiments.diagnose.pool_rewards import PoolRewards
from llm_experiments.gradient.repeats import gradient_errors

FLOORS = ("oracle", "best_baseline")
PURPOSE, DEBIASED_PURPOSE = 2, 3  # of the random numbers


def prompt_gradient_errors(
    pool: PoolRewards,
    gram: np.ndarray,
    estimators: Sequence[Estimator] | None = None,
    *,
    group_size: int,
    repeats: int,
    seed: int,
    debiased: bool = False,
) -> PromptErrors:
    """Errors of each prompt's gradient at one target step.

    pool: With the weights ``exact``.
    gram (ndarray, shape (P, N, N)): Inner products of the target pool's scores; the diagonal is the exact weight of
        each completion.
    estimators: They share the draws. None takes all plain ones, and the score-weighted ones whose weights are known.
    group_size, repeats: G (at least 2) and M.
    debiased: Unbiased estimates of ``E ||ghat - g||^2`` in place of the paper's; N must be at least G + 2.
    Returns: Of the estimators, then of `FLOORS`.
    """
    estimators = plain_estimators() + weighted_estimators(pool) if estimators is None else list(estimators)
    errors = _debiased_errors if debiased else _pooled_errors
    names = (*(estimator.name for estimator in estimators), *FLOORS)
    return PromptErrors(pool.step, names, errors(pool, gram, estimators, group_size, repeats, seed))


def _pooled_errors(
    pool: PoolRewards, gram: np.ndarray, estimators: Sequence[Estimator], group_size: int, repeats: int, seed: int
) -> np.ndarray:
    reference = (pool.target - pool.target.mean(axis=1, keepdims=True)) / pool.n_target
    floors = _floor_values(pool)
    total = np.zeros((pool.n_prompts, len(estimators) + len(FLOORS)))
    for drawn in Drawing(group_size, replace=True, seed=seed, purpose=PURPOSE).chunks(pool, repeats):
        values = [estimator.values(drawn) for estimator in estimators]
        values += [np.broadcast_to(floor, drawn.indices.shape) for floor in floors]
        advantages = drawn.reward - np.stack(values)
        for prompt in range(pool.n_prompts):
            errors = gradient_errors(
                gram[prompt], reference[prompt], drawn.indices[:, prompt], advantages[:, :, prompt]
            )
            total[prompt] += errors.sum(axis=-1)
    return total / repeats


def _floor_values(pool: PoolRewards) -> tuple[np.ndarray, np.ndarray]:
    """Best constants for each prompt's pool, shape (P, 1): its value, and its best baseline."""
    weight = pool.target_weight["exact"]
    value = pool.target.mean(axis=1, keepdims=True)
    mass = weight.sum(axis=1, keepdims=True)
    best = (weight * pool.target).sum(axis=1, keepdims=True) / np.where(mass > 0, mass, 1.0)
    return value, np.where(mass > 0, best, value)


def _debiased_errors(
    pool: PoolRewards, gram: np.ndarray, estimators: Sequence[Estimator], group_size: int, repeats: int, seed: int
) -> np.ndarray:
    squared_norm = squared_gradient_norm(gram, pool.target)
    total = np.zeros((pool.n_prompts, len(estimators)))
    for drawn in Drawing(group_size, seed=seed, purpose=DEBIASED_PURPOSE).chunks(pool, repeats):
        within, across = _products(gram, drawn)
        for column, estimator in enumerate(estimators):
            advantage = drawn.reward - estimator.values(drawn)
            own = np.einsum("rpg,rpgk,rpk->p", advantage, within, advantage, optimize=True) / group_size**2
            total[:, column] += own - 2 * np.einsum("rpg,rpg->p", advantage, across) / group_size
    noises = (value_noise(gram, pool.target), best_baseline_noise(gram, pool.target))
    floors = [(noise - squared_norm) / group_size for noise in noises]
    return np.column_stack([total / repeats + squared_norm[:, None], *floors])


def squared_gradient_norm(gram: np.ndarray, reward: np.ndarray) -> np.ndarray:
    """Unbiased estimate of ``||Cov(Z, s)||^2 = ||g||^2`` for each prompt.

    The U-statistic over distinct (h, k, l, m) of ``(Z_h - Z_k) (Z_l - Z_m) <s_h - s_k, s_l - s_m> / 4`` in the closed
    form of Song et al. (2012, "Feature selection via dependence maximization", Theorem 5).

    gram: ndarray, shape (P, N, N).
    reward (ndarray, shape (P, N)): N at least 4.
    Returns ndarray, shape (P,).
    """
    n = reward.shape[-1]
    centred = reward - reward.mean(axis=-1, keepdims=True)  # changes nothing but rounding
    off_diagonal = 1.0 - np.eye(n)
    k = gram * off_diagonal
    products = centred[:, :, None] * centred[:, None, :] * off_diagonal
    k_rows, product_rows = k.sum(axis=-1), products.sum(axis=-1)
    trace = np.einsum("phk,phk->p", k, products)
    totals = k_rows.sum(axis=-1) * product_rows.sum(axis=-1) / ((n - 1) * (n - 2))
    mixed = 2 / (n - 2) * np.einsum("ph,ph->p", k_rows, product_rows)
    return (trace + totals - mixed) / (n * (n - 3))


def value_noise(gram: np.ndarray, reward: np.ndarray) -> np.ndarray:
    """Unbiased estimate of ``E[W (Z - V)^2]`` for each prompt, W the squared score norm.

    The U-statistic over distinct (h, k, l) of ``W_h (Z_h - Z_k) (Z_h - Z_l)``; shapes as in `squared_gradient_norm`.
    """
    n = reward.shape[-1]
    difference = reward[:, :, None] - reward[:, None, :]
    pairs = difference.sum(axis=-1) ** 2 - (difference**2).sum(axis=-1)
    weight = np.diagonal(gram, axis1=1, axis2=2)
    return (weight * pairs).mean(axis=-1) / ((n - 1) * (n - 2))


def best_baseline_noise(gram: np.ndarray, reward: np.ndarray) -> np.ndarray:
    """``E[W (Z - b*)^2] = E[W Z^2] - E[W Z]^2 / E[W]`` for each prompt, by the jackknife; shapes as above."""
    n = reward.shape[-1]
    weight = np.diagonal(gram, axis1=1, axis2=2)
    parts = np.stack([weight, weight * reward, weight * reward**2])  # (3, P, N)
    total = parts.sum(axis=-1, keepdims=True)
    whole, without = _least(*(total / n)), _least(*((total - parts) / (n - 1)))
    return n * whole[..., 0] - (n - 1) * without.mean(axis=-1)


def _least(mass: np.ndarray, carried: np.ndarray, squared: np.ndarray) -> np.ndarray:
    """Minimum over b of ``E[W (Z - b)^2]``."""
    positive = mass > 0
    return squared - np.where(positive, carried**2 / np.where(positive, mass, 1.0), 0.0)


def _products(gram: np.ndarray, drawn: DrawnGroups) -> tuple[np.ndarray, np.ndarray]:
    """Inner products of the drawn scores.

    Returns within (ndarray, shape (R, P, G, G)): With each other.
    Returns across (ndarray, shape (R, P, G)): With minus the reference gradient of the rest of the pool.
    """
    indices, reward = drawn.indices, drawn.pool.target
    prompt = np.arange(len(reward))[:, None]
    rest = np.ones((len(indices), *reward.shape))
    np.put_along_axis(rest, indices, 0.0, axis=-1)
    left = reward.shape[-1] - indices.shape[-1]
    mean = (rest * reward).sum(axis=-1, keepdims=True) / left
    coefficient = rest * (reward - mean) / (left - 1)
    product = np.einsum("rpn,pnm->rpm", coefficient, gram, optimize=True)
    within = gram[prompt[..., None], indices[..., :, None], indices[..., None, :]]
    return within, np.take_along_axis(product, indices, axis=-1)
