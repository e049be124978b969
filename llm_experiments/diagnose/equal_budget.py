"""Noise of the gradient at an equal budget of completions, of any design, from pools.

A design is a baseline, the G completions that a prompt gets in a step, and the completions of each past step that the
baseline has seen. A step of B completions has B / G prompts, and ::

    B E ||ghat - g||^2 = within + G between

(`kaestat.theory.equal_budget`). Each part is estimated without bias from the pools of P prompts, N completions each:

``within = E_x G (E ||ghat_x||^2 - ||g_x||^2)``
    Groups are drawn *without* replacement, so that each is, over all pools, a group of independent completions.
    ``||ghat_x||^2`` is itself, with what the completions of a group have in common through their baseline. The prompts
    are shuffled and cut into batches of B / G, and a baseline that uses other prompts sees its batch alone.
    ``||g_x||^2`` is the U-statistic of `squared_gradient_norm`.
``between = E_x ||g_x||^2 - ||g||^2``
    Pools of different prompts are independent, so the mean of ``<u_x, u_y>`` over x != y is unbiased for ``||g||^2``,
    where ``u_x = sum_h (Z_h - mean Z) s_h / (N - 1)`` is the sample covariance of reward and score.

Baselines are leave-one-out here, so gradients are unbiased and the noise is all of the error. What a baseline that uses
other prompts makes their gradients have in common is left out. It is of relative order 1 / B: nothing to be seen with
dozens of completions, and not to be neglected with four. Errors are those of the jackknife over prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kaestat.logs.jackknife import jackknife_interval
from llm_experiments.diagnose.draws import Drawing
from llm_experiments.diagnose.estimators import WEIGHTED_KAE_EB, Estimator, check_estimators, make_estimator
from llm_experiments.diagnose.gradient_inputs import FLOORS, with_exact_weights
from llm_experiments.diagnose.gradient_mse_debiased import (
    best_baseline_noise,
    squared_gradient_norm,
    value_noise,
)
from llm_experiments.diagnose.gradient_signal import between_prompts, left_out, squared_mean
from llm_experiments.diagnose.pool_rewards import PoolRewards

PURPOSE = 4  # of the random numbers
NAMES = ("none", "reinforce++", "grpo", "kae", "kae_eb")
GROUP_MEAN = "grpo"  # needs another completion in the group
DESIGN_COLUMNS = [
    "step",
    "method",
    "group_size",
    "past",
    "within",
    "within_se",
    "noise",
    "noise_se",
    "relative",
    "relative_low",
    "relative_high",
    "to_signal",
    "to_signal_low",
    "to_signal_high",
    "to_weighted",
    "to_weighted_low",
    "to_weighted_high",
    "n_prompts",
]
DRAWN_COLUMNS = ["step", "method", "group_size", "past", "formula", "formula_se", "drawn", "drawn_se", "draws"]


@dataclass(frozen=True)
class Design:
    """How completions are spent, and on which baseline.

    Attributes
    ----------
    method : str
        Of `make_estimator`, or of `FLOORS`.
    group_size : int
        G.
    past : int
        Completions of each prompt at each past step; 0 where the baseline reads none.
    """

    method: str
    group_size: int
    past: int = 0


@dataclass(frozen=True, eq=False)
class DesignNoise:
    """What the noise of designs is made of, for each prompt of one target step.

    Attributes
    ----------
    step : int
    designs : tuple of Design, length K
    within : ndarray, shape (P, K)
        ``G (E ||ghat_x||^2 - ||g_x||^2)``.
    squared_norm : ndarray, shape (P,)
        ``||g_x||^2``.
    across : ndarray, shape (P,)
        ``sum_{y != x} <u_x, u_y>``, whose mean over P - 1 others and all prompts is ``||g||^2``.
    """

    step: int
    designs: tuple[Design, ...]
    within: np.ndarray
    squared_norm: np.ndarray
    across: np.ndarray

    def table(self, reference: Design) -> pd.DataFrame:
        """The designs' noise, with errors over prompts.

        Parameters
        ----------
        reference : Design
            One of the designs.

        Returns
        -------
        DataFrame
            ``step, method, group_size, past``; ``within`` and ``noise`` (``B E ||ghat - g||^2``) with standard errors;
            ``relative``, the noise relative to the reference's: completions needed for one of the reference's;
            ``to_signal``, relative to ``||g||^2``: completions at which noise equals signal; and ``to_weighted``,
            relative to that of `WEIGHTED_KAE_EB` with the same G and its longest past; all with 95 % intervals. NaN
            where the signal cannot be told from 0, and where there is no such design.
        """
        size = np.array([design.group_size for design in self.designs], dtype=float)
        within = self.within.mean(axis=0)
        signal, signal_out = squared_mean(self.across)
        between, between_out = between_prompts(self.squared_norm, self.across)
        within_out, noise_out = left_out(self.within), left_out(self.within) + size * between_out[:, None]
        noise, column = within + size * between, self.designs.index(reference)
        relative = _ratio(noise, noise[column], noise_out, noise_out[:, [column]])
        to_signal = _ratio(noise, signal, noise_out, signal_out[:, None])
        paired = self._weighted_columns()
        there = paired >= 0
        to_weighted = _ratio(
            noise, np.where(there, noise[paired], np.nan), noise_out, np.where(there, noise_out[:, paired], np.nan)
        )
        return pd.DataFrame(
            {
                "step": self.step,
                "method": [design.method for design in self.designs],
                "group_size": size.astype(np.int64),
                "past": [design.past for design in self.designs],
                "within": within,
                "within_se": jackknife_interval(within, within_out)[0],
                "noise": noise,
                "noise_se": jackknife_interval(noise, noise_out)[0],
                **dict(zip(("relative", "relative_low", "relative_high"), relative, strict=True)),
                **dict(zip(("to_signal", "to_signal_low", "to_signal_high"), to_signal, strict=True)),
                **dict(zip(("to_weighted", "to_weighted_low", "to_weighted_high"), to_weighted, strict=True)),
                "n_prompts": len(self.within),
            },
            columns=DESIGN_COLUMNS,
        )

    def _weighted_columns(self) -> np.ndarray:
        """For each design the column of `WEIGHTED_KAE_EB` with the same G and its longest past, or -1; shape (K,)."""
        weighted = [(each.past, k) for k, each in enumerate(self.designs) if each.method == WEIGHTED_KAE_EB]
        column = {self.designs[k].group_size: k for _, k in sorted(weighted)}
        return np.array([column.get(each.group_size, -1) for each in self.designs])


def designs_for(
    pool: PoolRewards, *, group_sizes: Sequence[int], past_sizes: Sequence[int], budget: int
) -> list[Design]:
    """The designs that the diagnostic compares: `NAMES`, plain and with exact weights, and `FLOORS`.

    Sizes that the pool or the budget is too small for, and a group's mean of one completion, are left out.
    """
    methods = [name + at for name in NAMES for at in ("", "@exact") if name != "none" or not at]
    estimators = [make_estimator(name) for name in methods]
    sizes = [size for size in group_sizes if size <= min(budget, pool.n_target - 2)]
    found = []
    for estimator in estimators:
        if estimator.missing(pool):
            continue
        pasts = [each for each in past_sizes if each <= pool.history.shape[-1]] if estimator.reads_history else [0]
        alone = estimator.name.partition("@")[0] == GROUP_MEAN
        found += [Design(estimator.name, size, past) for past in pasts for size in sizes if size > 1 or not alone]
    return found + [Design(name, size) for name in FLOORS for size in sizes]


def reference_design(designs: Sequence[Design], group_size: int) -> Design:
    """The group's mean with at most so many completions: what practitioners compare with.

    Raises
    ------
    ValueError
        If there is none.
    """
    fitting = [each for each in designs if each.method == GROUP_MEAN and each.group_size <= group_size]
    if not fitting:
        raise ValueError(f"no design has the method {GROUP_MEAN} with 2 to {group_size} completions; add a group size.")
    return max(fitting, key=lambda each: each.group_size)


def design_noise(
    pool: PoolRewards,
    gram: np.ndarray,
    across: np.ndarray,
    designs: Sequence[Design],
    *,
    budget: int,
    repeats: int,
    seed: int,
) -> DesignNoise:
    """Estimate the noise of designs at one target step.

    Parameters
    ----------
    pool : PoolRewards
    gram : ndarray, shape (P, N, N)
    across : ndarray, shape (P,)
        ``sum_{y != x} <u_x, u_y>`` of `gradient_signal.mean_coefficients`.
    designs : sequence of Design
    budget : int
        B: a baseline that uses other prompts sees B / G of them, rounded down; at most P.
    repeats : int
        R.
    seed : int

    Raises
    ------
    ValueError
        If pools, groups and budget do not fit each other, or an estimator lacks its weights.
    """
    methods = {design.method: None for design in designs if design.method not in FLOORS}
    estimators = {name: make_estimator(name) for name in methods}
    pool = with_exact_weights(pool, gram)
    if estimators:
        check_estimators(list(estimators.values()), pool)
    for design in designs:
        if not 1 <= budget // design.group_size <= pool.n_prompts:
            raise ValueError(
                f"budget = {budget} makes {budget / design.group_size:g} groups of {design.group_size}; a step needs "
                f"at least one, and at most the {pool.n_prompts} prompts that there are."
            )
    least = max(4, *(design.group_size for design in designs))
    if pool.n_target < least:
        raise ValueError(f"the target pool holds {pool.n_target} completions; give at least {least}.")
    squared_norm = squared_gradient_norm(gram, pool.target)
    floors = dict(zip(FLOORS, (value_noise(gram, pool.target), best_baseline_noise(gram, pool.target)), strict=True))
    within = np.zeros((pool.n_prompts, len(designs)))
    for column, design in enumerate(designs):
        if design.method in floors:
            within[:, column] = floors[design.method] - squared_norm
        else:
            squares = _mean_squares(pool, gram, estimators[design.method], design, budget, repeats, seed)
            within[:, column] = design.group_size * (squares - squared_norm)
    return DesignNoise(pool.step, tuple(designs), within, squared_norm, np.asarray(across, dtype=float))


def _mean_squares(
    pool: PoolRewards,
    gram: np.ndarray,
    estimator: Estimator,
    design: Design,
    budget: int,
    repeats: int,
    seed: int,
) -> np.ndarray:
    """``E ||ghat_x||^2`` of each prompt, shape (P,)."""
    size = design.group_size
    drawing = Drawing(size, seed=seed, purpose=PURPOSE, past_size=design.past or None)
    shuffle = np.random.default_rng([seed, pool.step, PURPOSE, size])  # the same prompts in a batch for all methods
    total, times = np.zeros(pool.n_prompts), np.zeros(pool.n_prompts)
    for drawn in drawing.chunks(pool, repeats):
        order = np.argsort(shuffle.random((len(drawn.indices), pool.n_prompts)), axis=1)
        batches = drawn.in_batches(order, budget // size)
        advantage, chosen = batches.reward - estimator.values(batches), batches.indices
        products = gram[batches.rows[..., None, None], chosen[..., :, None], chosen[..., None, :]]
        squares = np.einsum("...g,...gk,...k->...", advantage, products, advantage, optimize=True) / size**2
        total += np.bincount(batches.rows.ravel(), weights=squares.ravel(), minlength=pool.n_prompts)
        times += np.bincount(batches.rows.ravel(), minlength=pool.n_prompts)
    if not times.all():
        raise ValueError(f"repeats = {repeats} are too few: some prompts are in none of the batches.")
    return total / times


def _ratio(
    value: np.ndarray, reference: float | np.ndarray, value_out: np.ndarray, reference_out: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ratio with a 95 % interval, symmetric on the logarithm; NaN where a part is not positive."""
    usable = (value > 0) & (reference > 0) & (value_out > 0).all(axis=0) & (reference_out > 0).all(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm, logarithm_out = np.log(value / reference), np.log(value_out / reference_out)
    logarithm = np.where(usable, logarithm, np.nan)
    _, low, high = jackknife_interval(logarithm, np.where(usable, logarithm_out, np.nan))
    return np.exp(logarithm), np.exp(low), np.exp(high)
