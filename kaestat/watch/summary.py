"""Figures of a run so far, with their errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kaestat.logs.prompt_risks import contributions

FEWEST = 2  # to have a spread


@dataclass(frozen=True)
class MethodFigures:
    """The quality of a method's values.

    Attributes
    ----------
    method : str
    error, error_se : float
        Value MSE as in `kaestat.value_risk`, and its standard error over prompts, which is too small for methods
        that pool prompts; with one completion per visit, the difference to the reference's. NaN before any prompt
        returns.
    ratio, ratio_se : float
        Value MSE divided by that of the reference; NaN with one completion per visit.
    noise, noise_se : float
        Noise of the gradient, E[W (R - b)^2], divided by that of the reference, and its standard error; NaN without
        weights and lengths.
    """

    method: str
    error: float
    error_se: float
    ratio: float
    ratio_se: float
    noise: float
    noise_se: float


@dataclass(frozen=True)
class Recent:
    """A figure over the newest steps.

    Attributes
    ----------
    mean, se : float
        Mean over the steps with the figure, and its standard error from their spread; NaN if there are none.
    """

    mean: float
    se: float

    @classmethod
    def of(cls, figures: np.ndarray) -> Recent:
        """The mean of the figures of some steps, without NaN."""
        known = figures[np.isfinite(figures)]
        if len(known) == 0:
            return cls(math.nan, math.nan)
        spread = math.nan if len(known) < FEWEST else float(known.std(ddof=1)) / math.sqrt(len(known))
        return cls(float(known.mean()), spread)


@dataclass(frozen=True, eq=False)
class RunSummary:
    """The summary of a run so far.

    Attributes
    ----------
    n_completions, n_prompts, n_steps : int
        Numbers in complete steps.
    last_step : int
        The newest complete step; -1 if there is none.
    recent_steps : int
        Number of newest steps in the following five means.
    reward, dead, right, returned, reached : Recent
        Mean reward; share of groups of two or more whose rewards are all equal, and of those with all rewards at the
        run's highest; share of prompts seen before; share with a past within reach of ``reach_of``.
    reach_of : str
        The method with that reach; empty if no method looks back.
    absolute : bool
        Whether value errors are known, not only their differences: some group has two completions.
    measured_by : str
        The measure of noise: ``"weight"``, ``"length"``, or empty.
    reference : str
        The method to compare with.
    methods : tuple of MethodFigures
        Lowest error first.
    late : int
        Completions that arrived for complete steps, and do not count.
    told : tuple of str
        Warnings of the methods.
    """

    n_completions: int
    n_prompts: int
    n_steps: int
    last_step: int
    recent_steps: int
    reward: Recent
    dead: Recent
    right: Recent
    returned: Recent
    reached: Recent
    reach_of: str
    absolute: bool
    measured_by: str
    reference: str
    methods: tuple[MethodFigures, ...]
    late: int
    told: tuple[str, ...]


def method_figures(
    names: list[str], errors: tuple[np.ndarray, np.ndarray], noises: tuple[np.ndarray, np.ndarray], *, absolute: bool
) -> tuple[MethodFigures, ...]:
    """Figures of all methods, lowest error first; the last method given is the reference.

    ``errors`` and ``noises`` hold the mean of each prompt, (M, C), and its weight, (C,): equal for errors, the number
    of completions for noises. With ``absolute`` errors are known, not only their differences.
    """
    per_prompt, size = errors[0].T, np.ones(len(errors[1]))
    shown = per_prompt if absolute else per_prompt - per_prompt[:, -1:]
    error, error_se = _mean(shown)
    ratio, ratio_se = _ratios(per_prompt, size) if absolute else _nothing(len(names))
    noise, noise_se = _ratios(noises[0].T, noises[1])
    columns: list[Any] = [error, error_se, ratio, ratio_se, noise, noise_se]
    rows = [MethodFigures(name, *row) for name, *row in zip(names, *(c.tolist() for c in columns), strict=True)]
    return tuple(sorted(rows, key=lambda row: (math.isnan(row.error), row.error)))


def _nothing(n_methods: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full(n_methods, np.nan), np.full(n_methods, np.nan)


def _mean(per_prompt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over prompts and its standard error, each of shape (M,)."""
    n = len(per_prompt)
    if n == 0:
        return _nothing(per_prompt.shape[1])
    se = np.full(per_prompt.shape[1], np.nan) if n < FEWEST else per_prompt.std(axis=0, ddof=1) / math.sqrt(n)
    return per_prompt.mean(axis=0), se


def _ratios(per_prompt: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means over that of the last method, with standard errors of their linear parts."""
    if len(per_prompt) == 0:
        return _nothing(per_prompt.shape[1])
    parts = contributions(per_prompt, size)
    mean = parts.mean(axis=0)
    if not mean[-1] > 0:
        return _nothing(per_prompt.shape[1])
    ratio = mean / mean[-1]
    _, se = _mean((parts - ratio * parts[:, -1:]) / mean[-1])
    return ratio, se
