"""Noise of the policy gradient at an equal budget of completions: few prompts with many completions, or many with few.

Notation: prompt x has value V_x, gradient ``g_x = grad V_x``, and ``g = E g_x``. Completion j of a group of G has
score ``s_j`` (of log pi, so ``E[s_j] = 0`` given the prompt), ``W_j = ||s_j||^2``, reward ``R_j`` and baseline ``b_j``.
A step has a budget of B completions, hence B / G prompts, and ``ghat`` is the mean of its ``(R_j - b_j) s_j``. Groups
of different prompts are independent, so with the mean ``ghat_x`` of a group ::

    E ||ghat - g||^2 = (1/B) [within + G between]
    within  = E_x G E ||ghat_x - g_x||^2                   noise of one completion given its prompt
    between = E_x ||g_x||^2 - ||g||^2                      how much the prompts' gradients differ

What a baseline does is in ``within``. A baseline that is independent of the group's rewards (past, constant) leaves the
group's completions uncorrelated. A leave-one-out one does not: let ``b_j = r + a sum_{k != j} R_k`` (a = 1 / (G - 1)
for the group's mean). Of ``E <(R_1 - b_1) s_1, (R_2 - b_2) s_2>`` only those products survive in which each score meets
its own reward, ``R_1 R_2`` and ``a^2 R_2 R_1``, so it is ``(1 + a^2) ||g_x||^2`` and ::

    within = E_x { E[W (R - b)^2] - ||g_x||^2 + (G - 1) a^2 ||g_x||^2 }

Baselines that use *other prompts'* rewards of the step correlate the groups in the same way. With weight a each (the
batch's mean: a = 1 / (B - 1)) that adds at most ``a^2 ||g||^2`` to the noise, which is left out here;
`kaestat.theory.gradient.cross_term` has it.
"""

from __future__ import annotations

import math

import numpy as np

from kaestat.core.checks import check_factors, check_finite_number, check_shapes, check_whole


def within_noise(
    second_moment: np.ndarray | float,
    squared_norm: np.ndarray | float,
    *,
    group_size: int,
    own_derivative: np.ndarray | float = 0.0,
) -> float:
    """``mean_x { E[W (R - b)^2] - ||g_x||^2 + (G - 1) a^2 ||g_x||^2 }``: noise of one completion given its prompt.

    Parameters
    ----------
    second_moment : array, shape (P,)
        ``E[W (R - b)^2]`` of each prompt.
    squared_norm : array, shape (P,)
        ``||g_x||^2``.
    group_size : int
        G.
    own_derivative : array, shape (P,)
        a, weight of one other completion of the group in the baseline: 0 for baselines from the past and constants,
        ``1 / (G - 1)`` for the leave-one-out mean. For other baselines its root mean square.

    Raises
    ------
    ValueError, TypeError
        If something is not a number, the group's size not positive, or shapes do not fit. Squares may be negative, as
        unbiased estimates of them are.

    Examples
    --------
    The leave-one-out mean of two completions, whose errors are correlated:

    >>> within_noise([1.0, 2.0], 0.1, group_size=2, own_derivative=1.0)
    1.5
    """
    group_size = check_whole("group_size", group_size)
    second_moment = check_factors("second_moment", second_moment)
    squared_norm = check_factors("squared_norm", squared_norm)
    derivative = check_factors("own_derivative", own_derivative)
    check_shapes(second_moment=second_moment, squared_norm=squared_norm, own_derivative=derivative)
    return float(np.mean(second_moment + ((group_size - 1) * derivative**2 - 1) * squared_norm))


def gradient_noise(
    within: np.ndarray | float,
    between: np.ndarray | float,
    *,
    budget: int,
    group_size: np.ndarray | int,
    prompts: int | None = None,
) -> np.ndarray:
    """``E ||ghat - g||^2 = (1/B) [within + G between]`` of B completions in groups of G.

    Parameters
    ----------
    within, between : array
        Of each design; `within_noise` gives the first.
    budget : int
        B.
    group_size : integer array
        G of each design.
    prompts : int, optional
        m, where a step's prompts are drawn without replacement from m of them, whose mean gradient is g: then only
        ``(m - B/G) / (m - 1)`` of ``between`` is left. None means that they are independent.

    Returns
    -------
    ndarray
        Shape of the arguments, broadcast.

    Raises
    ------
    ValueError, TypeError
        If something is not a number, a size not positive or a group larger than the budget, a step would need more
        prompts than there are, or shapes do not fit.

    Examples
    --------
    Sixty-four completions in groups of 1, 2, 4 and 8, where prompts' gradients differ by a tenth of the noise:

    >>> gradient_noise(1.0, 0.1, budget=64, group_size=[1, 2, 4, 8]).round(4)
    array([0.0172, 0.0188, 0.0219, 0.0281])
    """
    budget = check_whole("budget", budget)
    within, between = check_factors("within", within), check_factors("between", between)
    size = check_factors("group_size", group_size, least=1, most=budget)
    check_shapes(within=within, between=between, group_size=size)
    if prompts is not None:
        prompts = check_whole("prompts", prompts)
        if (budget / size > prompts).any():
            raise ValueError(f"budget = {budget} in groups of {size.min():g} needs more prompts than the {prompts}.")
        between = between * (prompts - budget / size) / max(prompts - 1, 1)
    return (within + size * between) / budget


def allocated_gradient_noise(
    within: np.ndarray | float,
    products: np.ndarray,
    allocation: np.ndarray,
    count_covariance: np.ndarray,
    *,
    probability: np.ndarray | None = None,
) -> float:
    """``E ||ghat - g||^2`` where prompt x gets n_x completions, at random with mean nu_x, and each counts pi_x / nu_x.

    ``ghat = sum_x pi_x / nu_x sum_{j <= n_x} (R_j - b_j) s_j`` is unbiased for ``g = sum_x pi_x g_x``, and ::

        E ||ghat - g||^2 = sum_x pi_x^2 w_x / nu_x  +  sum_xy (pi_x pi_y / nu_x nu_y) Cov(n_x, n_y) <g_x, g_y>

    with the prompts' own ``within`` w_x. Counts rounded up or down at random (n_x = 0 or 1, nu_x <= 1) have the
    variance ``nu_x (1 - nu_x)``; so without their covariances this is ``sum_x pi_x^2 m_x / nu_x`` less what does not
    depend on nu, with the second moment ``m_x = w_x + ||g_x||^2``. B / G independent draws of groups of G are
    `independent_counts`, and with nu = B pi they give `gradient_noise`.

    Parameters
    ----------
    within : array, shape (P,)
        w_x; it must not depend on n_x, as with baselines from the past, or groups of a fixed size.
    products : array, shape (P, P)
        ``<g_x, g_y>``.
    allocation : array, shape (P,)
        nu_x, positive.
    count_covariance : array, shape (P, P)
        ``Cov(n_x, n_y)``.
    probability : array, shape (P,), optional
        pi_x; None means 1 / P.

    Raises
    ------
    ValueError, TypeError
        If something is not a number, an expected count is not positive, or shapes are others.
    """
    allocation = check_factors("allocation", allocation, ndim=1)
    if allocation.ndim != 1 or not (allocation > 0).all():
        raise ValueError("allocation must be one row of positive expected counts: no prompt may be left out for good.")
    n = len(allocation)
    within = check_factors("within", within)
    probability = np.full(n, 1 / n) if probability is None else check_factors("probability", probability, least=0)
    products = check_factors("products", products, ndim=2)
    covariance = check_factors("count_covariance", count_covariance, ndim=2)
    for name, array, shapes in (
        ("within", within, ((), (n,))),
        ("probability", probability, ((n,),)),
        ("products", products, ((n, n),)),
        ("count_covariance", covariance, ((n, n),)),
    ):
        if array.shape not in shapes:
            raise ValueError(f"{name} must have shape {shapes[-1]}, got {array.shape}.")
    factor = probability / allocation
    return float(np.sum(probability * factor * within) + factor @ (covariance * products) @ factor)


def independent_counts(allocation: np.ndarray, *, group_size: int = 1) -> np.ndarray:
    """Covariances of the counts of B / G independent draws of groups: ``G (diag(nu) - nu nu' / B)``, ``B = sum nu``.

    Parameters
    ----------
    allocation : array, shape (P,)
        nu_x, expected completions.
    group_size : int
        G.

    Raises
    ------
    ValueError, TypeError
        If an expected count is negative or no number, or all are 0.

    Examples
    --------
    One draw of two prompts takes one or the other:

    >>> independent_counts([0.5, 0.5])
    array([[ 0.25, -0.25],
           [-0.25,  0.25]])
    """
    group_size = check_whole("group_size", group_size)
    allocation = check_factors("allocation", allocation, least=0, ndim=1)
    if allocation.ndim != 1 or not allocation.sum() > 0:
        raise ValueError("allocation must be one row of expected counts, not all of them 0.")
    return group_size * (np.diag(allocation) - np.outer(allocation, allocation) / allocation.sum())


def optimal_group_size(
    within: float,
    between: float,
    *,
    estimation: float = 0.0,
    prompt_cost: float = 0.0,
    completion_cost: float = 1.0,
) -> int:
    """The G of least noise at an equal cost, where a prompt costs something beyond its completions.

    A prompt with G completions costs ``c_x + G c_y``, so the noise times the cost is ::

        (c_x + G c_y) [within / G + estimation / (G (G - 1)) + between]

    Without ``estimation`` its least is at ``G = sqrt(c_x within / (c_y between))``, the optimum of two-stage sampling
    (Cochran, 1977, section 10.6), and at 1 where prompts cost nothing. A leave-one-out mean has the noise of its own
    estimation to lower, ``estimation = E_x { E[W] Var(R) + ||g_x||^2 }`` beside
    ``within = E_x { E[W (R - V)^2] - ||g_x||^2 }``; where prompts cost nothing its least is at
    ``G = 1 + sqrt(estimation / between)``.

    Parameters
    ----------
    within, between, estimation : float
        The first two as in `gradient_noise`, ``within`` without what a leave-one-out mean adds to it.
    prompt_cost, completion_cost : float
        c_x and c_y, in any unit: tokens read against tokens written, seconds.

    Returns
    -------
    int
        At least 1; at least 2 with ``estimation``.

    Raises
    ------
    ValueError, TypeError
        If something is not a number or negative, ``between`` or ``completion_cost`` is not positive.

    Examples
    --------
    >>> optimal_group_size(1.0, 0.01, prompt_cost=0.16)
    4
    >>> optimal_group_size(1.0, 0.01, estimation=0.09)
    4
    """
    given = {"within": within, "between": between, "estimation": estimation}
    costs = {"prompt_cost": prompt_cost, "completion_cost": completion_cost}
    for name, value in (given | costs).items():
        if not check_finite_number(name, value) >= 0:
            raise ValueError(f"{name} must not be negative, got {value!r}.")
    if not (between > 0 and completion_cost > 0):
        raise ValueError("between and completion_cost must be positive: otherwise no group is too large.")
    least = 2 if estimation > 0 else 1

    def noise(size: int) -> float:
        per_group = within / size + between + (estimation / (size * (size - 1)) if estimation > 0 else 0.0)
        return (prompt_cost + size * completion_cost) * per_group

    # Each term is convex in G, and beyond this bound all of them rise.
    gain = prompt_cost * (within + estimation) / completion_cost + estimation
    low, high = least, max(least, math.ceil(1 + math.sqrt(gain / between)) + 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if noise(middle) <= noise(middle + 1) else (middle + 1, high)
    return low
