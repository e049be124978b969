"""The law of the baseline: the gradient noise of each design, from a few moments of every prompt.

Rewards are 0 and 1. Prompt x has value p, gradient ``g_x = grad p`` and completions that weigh ``W = ||s||^2``, in the
metric in which the optimiser takes its step. A baseline b that knows nothing of the completion's own reward leaves
``E[W (R - b)^2]``, which is ::

    m(b) = p w_r (1 - b)^2 + (1 - p) w_w b^2,    w_r = E[W | right],  w_w = E[W | wrong],  rho = w_w / w_r
         = m(b*) + E[W] (b - b*)^2,              b* = E[W R] / E[W] = p / (p + (1 - p) rho)

(Greensmith, Bartlett and Baxter, 2004). So no baseline (b = 0) leaves less than the value (b = p) if and only if
``rho > 1 + 1 / (1 - p)``, and an error of b costs ``E[W]`` times its square. What follows puts that into numbers for
designs with and without a history, and for groups.

A step has B completions in groups of G. Groups of different prompts are independent, so with the mean ``ghat_x`` of a
group and ``g = E g_x`` ::

    E ||ghat - g||^2 = (1/B) [within + G between],    between = E_x ||g_x||^2 - ||g||^2
    within = E_x G E ||ghat_x - g_x||^2 = E_x { E[W (R - b)^2] - ||g_x||^2 + (G - 1) a^2 ||g_x||^2 }

a is the weight of one other completion of the group in the baseline: of ``E <(R_1 - b_1) s_1, (R_2 - b_2) s_2>`` those
products survive in which each score meets its own reward, ``R_1 R_2`` and ``a^2 R_2 R_1``. Baselines of *other
prompts'* rewards correlate groups in the same way; the batch's mean by at most ``||g||^2 / (B - 1)^2``, left out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kaestat.core.arrays import check_shapes
from kaestat.core.checks import check_number, check_numbers, check_whole

GROUP_SIZES = (2, 4, 8, 16)


@dataclass(frozen=True, eq=False)
class PromptMoments:
    """Moments of each prompt under one policy, for rewards 0 and 1, in one metric.

    Attributes
    ----------
    value : ndarray, shape (P,)
        p, between 0 and 1.
    right, wrong : ndarray, shape (P,)
        ``E[W | right]`` and ``E[W | wrong]``, not negative. For a prompt that is never right, ``right`` may be any
        number. A prompt whose ``E[W]`` is 0 has no gradient, and no baseline matters for it.
    right_square, wrong_square : ndarray, shape (P,)
        ``E[W^2 | right]`` and ``E[W^2 | wrong]``.
    signal : ndarray, shape (P,)
        ``||g_x||^2``.
    common : float
        ``||g||^2``, squared norm of the mean gradient over prompts.

    Raises
    ------
    ValueError
        If a number is out of its range, or shapes differ.
    """

    value: np.ndarray
    right: np.ndarray
    wrong: np.ndarray
    right_square: np.ndarray
    wrong_square: np.ndarray
    signal: np.ndarray
    common: float

    def __post_init__(self) -> None:
        checked = {
            "value": check_numbers("value", self.value, least=0, most=1, ndim=1),
            "signal": check_numbers("signal", self.signal, ndim=1),  # unbiased estimates of squares may be negative
        }
        for name in ("right", "wrong", "right_square", "wrong_square"):
            checked[name] = check_numbers(name, getattr(self, name), least=0, ndim=1)
        for name, array in checked.items():
            if array.shape != (len(checked["value"]),):
                raise ValueError(f"{name} must have shape ({len(checked['value'])},) as value has, got {array.shape}.")
            object.__setattr__(self, name, array)
        check_number("common", self.common)

    @property
    def weight(self) -> np.ndarray:
        """``E[W]``, shape (P,)."""
        return self.value * self.right + (1 - self.value) * self.wrong

    @property
    def best(self) -> np.ndarray:
        """``b* = E[W R] / E[W]``, shape (P,); the value of a prompt without weight."""
        weight = self.weight
        return np.where(weight > 0, self.value * self.right / np.where(weight > 0, weight, 1.0), self.value)

    @property
    def constant(self) -> float:
        """The best single number for all prompts, ``sum E[W R] / sum E[W]``."""
        return float((self.value * self.right).sum() / self.weight.sum())

    @property
    def ratio(self) -> float:
        """rho over all prompts: mean W of wrong answers divided by mean W of right ones."""
        p = self.value
        wrong, right = ((1 - p) * self.wrong).sum() / (1 - p).sum(), (p * self.right).sum() / p.sum()
        return float(wrong / right)

    @property
    def threshold(self) -> float:
        """The rho above which omitting the baseline leaves less noise than the value, over all these prompts.

        The sums of ``m(0)`` and ``m(p)`` over prompts, with the same rho for all, are equal at
        ``1 + sum p^2 w_r / sum p^2 (1 - p) w_r``. For one prompt that is ``1 + 1 / (1 - p)``. If right answers have
        equal weights, spread values have a higher threshold than their mean. It is infinite if each prompt is
        always right or always wrong.
        """
        p, squares = self.value, self.value**2 * self.right
        left = float((squares * (1 - p)).sum())
        return 1 + float(squares.sum()) / left if left > 0 else math.inf

    @property
    def between(self) -> float:
        """``E_x ||g_x||^2 - ||g||^2``."""
        return float(self.signal.mean() - self.common)

    def second_moment(self, baseline: np.ndarray | float, error: np.ndarray | float = 0.0) -> np.ndarray:
        """``E[W (R - b)^2]`` of each prompt, for a baseline with this mean and error variance, (P,)."""
        p = self.value
        return p * self.right * (1 - baseline) ** 2 + (1 - p) * self.wrong * baseline**2 + self.weight * error

    def square_moment(self, baseline: np.ndarray | float) -> np.ndarray:
        """``E[W^2 (R - b)^2]`` of each prompt, shape (P,), which gives the error of estimates of b*."""
        p = self.value
        return p * self.right_square * (1 - baseline) ** 2 + (1 - p) * self.wrong_square * baseline**2


@dataclass(frozen=True)
class DesignNoise:
    """The law's prediction for one design.

    Attributes
    ----------
    design : str
    noise : float
        Trace of the covariance of one completion's contribution to the update, at equal completions; the mean of B
        contributions has ``noise / B``.
    signal : float
        Squared length of the mean update along the true gradient.
    gain : float
        ``signal`` divided by the squared norm of the true gradient. Designs that divide by a deviation reweight
        prompts.
    """

    design: str
    noise: float
    signal: float
    gain: float = 1.0

    @property
    def relative_noise(self) -> float:
        """Noise at the length of the true gradient: comparable between designs at any learning rate."""
        return self.noise / self.gain if self.gain > 0 else math.inf


def predict_noise(
    moments: PromptMoments,
    *,
    completions: int,
    history: np.ndarray | float,
    drift: np.ndarray | float = 0.0,
    group_sizes: Sequence[int] = GROUP_SIZES,
) -> tuple[DesignNoise, ...]:
    """The noise of each design, least first.

    - ``none`` and ``none_signed``: b = 0 and, for rewards of -1 and 1, b = 1/2 (the factor 2 only changes the learning
    rate).
    - ``batch_mean``, ``weighted_batch_mean``: one number from the step's other completions. Unequal weights
      reduce the effective number of completions, as computed from the spread of W.
    - ``weighted_constant``: the same number without error, as from many past steps.
    - ``history``, ``weighted_history``: each prompt's own p and b*, estimated from ``history`` completions and shrunk
      to one number for all. The shrinkage minimises the error of the value, or with weights the noise;
      empirical Bayes estimates it. So the law never predicts a weighted history to be worse than its constant.
    - ``value``, ``best``: the true p and b*, which are unknown in a run.
    - ``rloo_G``: ``within + G between`` of the leave-one-out mean.
    - ``grpo_G``: the group's own mean, divided by its standard deviation. With k right answers of G, a right one has
    the
      advantage A_r(k), a wrong one A_w(k); the sum over k is exact. The mean update is ``E_x c(p) g_x`` with
      ``c(p) = E_k k (G - k) / (G^2 sd_k p (1 - p))``: prompts near 0 and 1 count more. The effect on the signal
      depends on the directions of prompts' gradients. The law assumes that the component of each along the mean
      gradient is proportional to its length. If ``signal`` is 0 for all prompts, the lengths are assumed proportional
      to ``p (1 - p) E[W]^(1/2)``: the difference of the mean scores of right and wrong answers,
      ``g_x / (p (1 - p))``, then has the same size for all prompts, relative to ``E[W]^(1/2)``.

    Raises a ValueError or TypeError if a number is out of its range, or shapes do not match.

    Parameters
    ----------
    moments : PromptMoments
    completions : int
        B, completions of a step.
    history : array, shape (P,), or float
        Effective past completions of each prompt, ``(sum k)^2 / sum k^2`` for kernel weights k. Infinite means that the
        value is known.
    drift : array, shape (P,), or float
        Squared error of the history due to a changing policy, the same for the value and for b*.
    group_sizes : sequence of int
        G of the group designs, at least 2.

    Returns
    -------
    tuple of DesignNoise
        By increasing noise for the same signal.
    """
    completions = check_whole("completions", completions, least=2)
    past = check_numbers("history", history, least=0, finite=False)
    drift = check_numbers("drift", drift, least=0)
    check_shapes(value=moments.value, history=past, drift=drift)
    if not (past > 0).all():
        raise ValueError("history must be positive: a prompt without a past has no value by history.")
    p, mean, constant = moments.value, float(moments.value.mean()), moments.constant
    others = completions - 1
    spread = float(moments.square_moment(constant).mean() / moments.weight.mean() ** 2)
    of_value = p * (1 - p) / past + drift
    squared = np.where(moments.weight > 0, moments.weight, 1.0) ** 2  # a prompt without weight has no numerator either
    of_best = moments.square_moment(moments.best) / (past * squared) + drift
    plain = _multiplier(np.ones_like(p), p - mean, of_value)
    weighted = _multiplier(moments.weight, moments.best - constant, of_best)
    single: dict[str, tuple[np.ndarray | float, np.ndarray | float]] = {
        "none": (0.0, 0.0),
        "none_signed": (0.5, 0.0),
        "batch_mean": (mean, mean * (1 - mean) / others),
        "weighted_batch_mean": (constant, spread / others),
        "weighted_constant": (constant, 0.0),
        "history": (mean + plain * (p - mean), plain**2 * of_value),
        "weighted_history": (constant + weighted * (moments.best - constant), weighted**2 * of_best),
        "value": (p, 0.0),
        "best": (moments.best, 0.0),
    }
    found = [
        DesignNoise(name, _noise(moments, moments.second_moment(*baseline), 1, 0.0), moments.common)
        for name, baseline in single.items()
    ]
    for size in group_sizes:
        size = check_whole("group_sizes", size, least=2)
        rloo = moments.second_moment(p, p * (1 - p) / (size - 1))
        found.append(DesignNoise(f"rloo_{size}", _noise(moments, rloo, size, 1 / (size - 1)), moments.common))
        found.append(_grpo(moments, size))
    return tuple(sorted(found, key=lambda each: each.relative_noise))


def predict_completions(design: DesignNoise, reference: DesignNoise, *, completions: int) -> float:
    """Completions that a design needs to reach the result of another, as a share of the other's number.

    With the best learning rate a step of B completions gains the share ``1 / (1 + N / B)`` of a step along the true
    gradient, with N the noise scale (McCandlish et al., 2018, "An Empirical Model of Large-Batch Training", equation
    2.7). So it needs ``B + N`` completions for the gain of the true gradient with B, and the ratio is ``(B + N) / (B +
    N')``. Far below the noise scale, completions are proportional to the noise; far above it, the choice of baseline
    does not matter. The result holds if noise scales change little during training, and each design has its own best
    rate.

    Parameters
    ----------
    design, reference : DesignNoise
        Two designs for the same moments.
    completions : int
        B.

    Raises
    ------
    ValueError
        If the reference has no signal.

    Examples
    --------
    Half the noise, at a batch far below the noise scale and at a batch equal to it:

    >>> half, whole = DesignNoise("half", 500.0, 1.0), DesignNoise("whole", 1000.0, 1.0)
    >>> [round(predict_completions(half, whole, completions=batch), 3) for batch in (1, 1000)]
    [0.5, 0.75]
    """
    batch = check_whole("completions", completions)
    if not reference.gain > 0:
        raise ValueError(f"reference: {reference.design} has no signal, since all of its groups are alike.")
    common = max(reference.signal / reference.gain, 0.0)  # an unbiased estimate of 0 may be below it
    return (batch * common + design.relative_noise) / (batch * common + reference.relative_noise)


def _noise(moments: PromptMoments, second_moment: np.ndarray, group_size: int, derivative: float) -> float:
    within = np.mean(second_moment + ((group_size - 1) * derivative**2 - 1) * moments.signal)
    return float(within) + group_size * moments.between


def _multiplier(weight: np.ndarray, distance: np.ndarray, error: np.ndarray) -> float:
    """How much of its distance to one number for all an estimate keeps, for the least weighted squared error."""
    spread, noise = float(np.mean(weight * distance**2)), float(np.mean(weight * error))
    return spread / (spread + noise) if spread > 0 else 0.0


def _grpo(moments: PromptMoments, size: int) -> DesignNoise:
    """Sum over the number of right answers, shape (P, G + 1)."""
    from scipy.stats import binom  # takes a second to import

    p = moments.value[:, None]
    k = np.arange(size + 1)
    chance = binom.pmf(k, size, p)
    alike = (k == 0) | (k == size)  # without an advantage
    deviation = np.where(alike, np.inf, np.sqrt(k * (size - k) / (size * (size - 1))))
    right, wrong = (1 - k / size) / deviation, -(k / size) / deviation
    signal = moments.signal[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):  # at p = 0 and 1 all rewards of a group are equal
        toward, away = k / p, (size - k) / (1 - p)
        share = (toward * right - away * wrong) / size
        # Scores of right answers have the mean g_x / p, of wrong ones -g_x / (1 - p).
        alone = k * right**2 * moments.right[:, None] + (size - k) * wrong**2 * moments.wrong[:, None]
        own = (right**2 * toward / p + wrong**2 * away / (1 - p)) * signal
        square = np.nansum(chance * ((alone - own) / size**2 + share**2 * signal), axis=1)
        slope = np.nansum(chance * share, axis=1)  # c(p)
    length = np.sqrt(np.clip(moments.signal, 0, None))
    if not length.any():
        length = moments.value * (1 - moments.value) * np.sqrt(moments.weight)
    gain = float((np.mean(slope * length) / length.mean()) ** 2) if length.any() else 0.0
    signal_along = gain * moments.common
    return DesignNoise(f"grpo_{size}", float(size * (square.mean() - signal_along)), signal_along, gain)
