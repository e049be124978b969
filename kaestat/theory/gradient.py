"""Theorem 2 as an identity: the gradient MSE of a value estimate in excess of the oracle's.

Notation: completion j of the N = B G completions of a step has score ``S_j`` (of log pi, so ``E[S_j] = 0`` given the
prompt), squared norm ``W_j = ||S_j||^2``, reward ``Z_j``, and value ``Vhat_j``; the gradient estimate is
``ghat = (1 / N) sum_j S_j (Z_j - Vhat_j)``, and the oracle's has the true values V.

Assumptions. Given the past and the prompts, completions are independent, and values are linear in the other
completions of the step, never in their own: ``Vhat_j = r_j + sum_{k != j} A_jk Z_k`` with ``r_j`` and A fixed by the
past. So `Kae` with any bandwidth selector, the leave-one-out group mean (GRPO), the leave-one-out batch mean
(REINFORCE++) and the like qualify. Shrinkage whose strength is estimated from the current groups (James-Stein, KAE-EB)
does not, exactly. Then, with nothing asked of score and reward (Assumption 6 makes the covariance zero)::

    MSE(ghat) - MSE(oracle) = (1/N) mean_j { E[W_j] MSE(Vhat_j) - 2 Cov(W_j, Z_j) Bias(Vhat_j) }
                              + (1/N^2) sum_{j != k} A_jk A_kj grad V_j . grad V_k

The proof: ``ghat - oracle = -(1/N) sum_j S_j e_j`` with the value errors ``e_j``. Of ``E[S_j . S_k e_j e_k]`` only the
part survives in which ``e_j`` holds Z_k and ``e_k`` holds Z_j, since scores have mean zero otherwise, and
``E[S_j Z_j] = grad V_j``. The interaction ``-(2/N^2) sum_jk E[S_j e_j . S_k (Z_k - V_k)]`` leaves j = k alone, which is
``Cov(W_j, Z_j) E[e_j]``. The paper's Theorem 2 has the first term and bounds the last, its I_2.
"""

import numpy as np

from kaestat.core.arrays import check_shapes
from kaestat.core.checks import SMALLEST, check_numbers, check_whole


def excess_gradient_mse(
    value_mse: np.ndarray | float,
    score_norm2: np.ndarray | float,
    *,
    batch: int,
    group_size: int,
    bias: np.ndarray | float = 0.0,
    covariance: np.ndarray | float = 0.0,
    own_derivative: np.ndarray | float = 0.0,
    value_gradient_norm2: np.ndarray | float = 0.0,
) -> float:
    """``MSE(ghat) - MSE(oracle)`` of an estimator that smooths within prompts, exactly.

    ``mean over prompts of [E[W] mse - 2 cov bias + (G - 1) a^2 ||grad V||^2] / (B G)``, whether the batch has all
    prompts or a random sample.

    Parameters
    ----------
    value_mse : array, shape (P,)
        Value MSE of each prompt that may be drawn.
    score_norm2 : array, shape (P,)
        ``E[W]``, mean squared norm of a completion's score.
    batch, group_size : int
        B and G.
    bias : array, shape (P,)
        Bias of the value.
    covariance : array, shape (P,)
        ``Cov(W, Z)`` of a completion; zero under the paper's Assumption 6.
    own_derivative : array, shape (P,)
        a, the root mean square weight of one other completion of the group in a value: ``K(0) / M`` for KAE,
        ``1 / (G - 1)`` for GRPO.
    value_gradient_norm2 : array, shape (P,)
        ``||grad V||^2`` of each prompt.

    Raises
    ------
    ValueError, TypeError
        If something is not a number, a size is not positive, ``score_norm2`` negative, or shapes do not fit.

    Examples
    --------
    >>> excess_gradient_mse([0.01, 0.03], 1.0, batch=4, group_size=8)
    0.000625
    """
    batch, group_size = check_whole("batch", batch), check_whole("group_size", group_size)
    norm2 = check_numbers("score_norm2", score_norm2, least=0)
    mse = check_numbers("value_mse", value_mse)  # unbiased estimates of it may be negative
    bias, covariance = check_numbers("bias", bias), check_numbers("covariance", covariance)
    own = check_numbers("own_derivative", own_derivative)
    signal = check_numbers("value_gradient_norm2", value_gradient_norm2)
    check_shapes(
        value_mse=mse,
        score_norm2=norm2,
        bias=bias,
        covariance=covariance,
        own_derivative=own,
        value_gradient_norm2=signal,
    )
    each = norm2 * mse - 2 * covariance * bias + (group_size - 1) * own**2 * signal
    return float(np.mean(each)) / (batch * group_size)


def gradient_mse_reduction(
    value_mse: np.ndarray | float, other_value_mse: np.ndarray | float, reward_variance: np.ndarray | float
) -> np.ndarray:
    """Reduction in per cent of one estimator's gradient MSE compared with another's, from value errors.

    ``100 [1 - (s2 + mse) / (s2 + mse')]`` with ``s2 = E[p (1 - p)]``: the identity for score norms independent of
    prompt and reward, if a prompt's gradient is small compared with its noise, ``||grad V||^2 << E[W] s2``, as it is
    for language models. It turns Table 1 of the paper into Table 2's percentages.

    Parameters
    ----------
    value_mse, other_value_mse : array
        Value MSE of our method and of the other one, without the noise of a Monte Carlo oracle.
    reward_variance : array
        Mean reward variance of the prompts.

    Returns
    -------
    ndarray

    Raises
    ------
    ValueError, TypeError
        If something is not a number, a variance is negative, the other gradient's MSE is not positive, or shapes do not
        match.

    Examples
    --------
    KAE compared with GRPO at G = 8, whose value MSE is ``s2 / 7``:

    >>> float(round(gradient_mse_reduction(0.005, 0.14 / 7, 0.14), 3))
    9.375
    """
    spread = check_numbers("reward_variance", reward_variance, least=0)
    ours, theirs = check_numbers("value_mse", value_mse), check_numbers("other_value_mse", other_value_mse)
    check_shapes(value_mse=ours, other_value_mse=theirs, reward_variance=spread)
    if not (spread + theirs >= SMALLEST).all():
        raise ValueError("reward_variance + other_value_mse must be positive: their gradient's MSE is relative to it.")
    return 100 * (1 - (spread + ours) / (spread + theirs))
