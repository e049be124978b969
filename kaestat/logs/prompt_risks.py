"""Risks of methods by prompt, and the tables made from them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kaestat.core.bootstrap import cluster_bootstrap, effective_number, mean_with_interval, skewed_ends, widened
from kaestat.core.spelling import named
from kaestat.logs.jackknife import replayed_interval

if TYPE_CHECKING:
    import pandas as pd

INTERVAL, SIZES = ["se", "ci_low", "ci_high"], ["n_prompts", "n_visits"]
RISK_COLUMNS = ["method", "mse", *INTERVAL, "vs_grpo", *SIZES]
DIFFERENCE_COLUMNS = ["method", "reference", "difference", *INTERVAL, "ratio", "ratio_low", "ratio_high", *SIZES]
FAR_BELOW = 2.0  # standard errors
FEW = 8.0  # prompts that carry an estimate; with fewer, 95 % intervals may cover too rarely


class FewPromptsWarning(UserWarning):
    """The warning that an estimate rests on so few prompts that its interval may be too short."""


class NegativeRiskWarning(UserWarning):
    """The warning that an estimated MSE is so far below 0 that chance is an unlikely cause."""


@dataclass(frozen=True, eq=False)
class PromptRisks:
    """Risk of several methods for each prompt, from one replay per method; the source of all tables of a log."""

    methods: tuple[Any, ...]  # length M; names of the rows, as given; the last one is the reference of the tables
    # shape (C, M); mean risk over the eligible visits of each prompt that has any (`contributions`, if prompts differ
    # in size)
    per_prompt: np.ndarray
    n_visits: int  # Number of eligible visits
    # Whether the reward variance is subtracted. If not, every risk is the MSE plus the same variance, and NaN for
    # methods that contain the completion's own reward
    absolute: bool
    pooled: tuple[bool, ...] = ()  # of bool, length M; whether the method pools prompts
    # shape (K, M); mean risk over the prompts outside group k: for methods that pool prompts, replayed without the
    # group; for others, from ``per_prompt``. None without such replays
    left_out: np.ndarray | None = None
    # shape (K, M); mean risk over the prompts outside group k from ``per_prompt``, of all methods
    apart: np.ndarray | None = None

    def take(self, positions: Sequence[int]) -> PromptRisks:
        """The risks of the methods at these positions, in this order."""
        columns = list(positions)
        return replace(
            self,
            methods=tuple(self.methods[position] for position in columns),
            per_prompt=self.per_prompt[:, columns],
            pooled=tuple(self.pooled[position] for position in columns) if self.pooled else (),
            left_out=None if self.left_out is None else self.left_out[:, columns],
            apart=None if self.apart is None else self.apart[:, columns],
        )

    def _jackknifed(self) -> tuple[np.ndarray, np.ndarray]:
        """Which methods need the jackknife and have it, shape (M,); ``left_out`` and ``apart``, empty if none do."""
        if self.left_out is None or self.apart is None:
            return np.zeros(len(self.methods), dtype=bool), np.empty((2, 0, len(self.methods)))
        return np.array(self.pooled, dtype=bool), np.stack([self.left_out, self.apart])

    def risk_table(self, *, n_boot: int, seed: int) -> pd.DataFrame:
        """The table of `value_risk` for all methods but the last, which must be GRPO."""
        import pandas as pd

        warn_of_few(self.methods[:-1], self.per_prompt[:, :-1])
        draws = cluster_bootstrap(self.per_prompt, n_boot=n_boot, seed=seed)
        mean, se, low, high = mean_with_interval(self.per_prompt, draws)
        again, without = self._jackknifed()
        if again.any():
            replayed = _replayed(mean[again], without[..., again], se[again], self.per_prompt[:, again])
            se[again], low[again], high[again] = replayed
        _warn_of_negative(self.methods[:-1], mean[:-1], se[:-1], len(self.per_prompt))
        vs_grpo = mean[:-1] / (mean[-1] if mean[-1] != 0 else np.nan)
        columns = ([*self.methods[:-1]], mean[:-1], se[:-1], low[:-1], high[:-1], vs_grpo, *self._sizes())
        return pd.DataFrame(dict(zip(RISK_COLUMNS, columns, strict=True)))

    def difference_table(self, *, n_boot: int, seed: int) -> pd.DataFrame:
        """`difference_columns` as a table."""
        import pandas as pd

        return pd.DataFrame(self.difference_columns(n_boot=n_boot, seed=seed))

    def difference_columns(self, *, n_boot: int, seed: int) -> dict[str, Any]:
        """The columns of `risk_differences` between all methods but the last and the last."""
        *methods, reference = self.methods
        paired = self.per_prompt[:, :-1] - self.per_prompt[:, -1:]
        draws = cluster_bootstrap(np.concatenate([self.per_prompt, paired], axis=1), n_boot=n_boot, seed=seed)
        drawn_risks, drawn_paired = np.split(draws, [len(self.methods)], axis=1)
        mean, se, low, high = mean_with_interval(paired, drawn_paired)
        pooled, without = self._jackknifed()
        again = pooled[:-1] | pooled[-1]
        if again.any():
            left = without[..., :-1] - without[..., -1:]
            replayed = _replayed(mean[again], left[..., again], se[again], paired[:, again])
            se[again], low[again], high[again] = replayed
        ratio = np.full((3, len(methods)), np.nan)
        if self.absolute:
            level = self.per_prompt.mean(axis=0)
            ratio[0] = np.divide(level[:-1], level[-1], out=np.full(len(methods), np.nan), where=level[-1] != 0)
            if n_boot:
                linear = np.sign(level[-1]) * (self.per_prompt[:, :-1] - ratio[0] * self.per_prompt[:, -1:])
                with np.errstate(invalid="ignore", divide="ignore"):  # a reference whose risk is 0 has no ratio
                    lowest, highest = np.quantile(drawn_risks[:, :-1] / drawn_risks[:, -1:], [0.025, 0.975], axis=0)
                    ratio[1:] = widened(ratio[0], lowest, highest, linear)
                    if again.any():
                        left, parts = without[..., :-1][..., again] / without[..., -1:], linear[:, again]
                        spread = parts.std(axis=0, ddof=1) / (math.sqrt(len(parts)) * abs(level[-1]))
                        ratio[1:, again] = _replayed(ratio[0, again], left, spread, parts)[1:]
        columns = (methods, [reference] * len(methods), mean, se, low, high, *ratio, *self._sizes())
        return dict(zip(DIFFERENCE_COLUMNS, columns, strict=True))

    def _sizes(self) -> tuple[list[int], list[int]]:
        """The numbers of prompts and visits, for every row but the last."""
        rows = len(self.methods) - 1
        return [len(self.per_prompt)] * rows, [self.n_visits] * rows


def warn_of_few(names: Sequence[Any], contributions: np.ndarray) -> None:
    """Warn by a `FewPromptsWarning` if the `effective_number` of contributions, (C, M), is below 8 for a row."""
    if len(contributions) < 2 or not len(names):
        return
    number = np.where(np.isfinite(contributions).all(axis=0), effective_number(contributions), np.inf)
    least = int(np.argmin(number))
    if number[least] < FEW:
        warnings.warn(
            f"{names[least]}: few of the {len(contributions)} prompts carry the estimate, as if there were "
            f"{number[least]:.1f} prompts with equal contributions. With fewer than {FEW:g}, 95 % intervals covered "
            f"the truth in 50 to 96 % of simulated logs. Log more prompts; a larger {named('n_boot')} does not help.",
            FewPromptsWarning,
            stacklevel=3,
        )


def _warn_of_negative(names: Sequence[Any], mse: np.ndarray, se: np.ndarray, n_prompts: int) -> None:
    below = np.flatnonzero(mse < -FAR_BELOW * se).tolist()
    if not below or n_prompts < FEW:  # of so few the standard error says little
        return
    rows = ", ".join(f"{names[k]} ({mse[k]:.3g}, standard error {se[k]:.3g})" for k in below)
    warnings.warn(
        f"the MSE of {rows} lies more than {FAR_BELOW:g} standard errors below 0. By chance that is rare: a value may "
        "contain its completion's own reward, or prompts may share an id. kaestat.check tests a baseline of your own.",
        NegativeRiskWarning,
        stacklevel=3,
    )


def sized_mean(risk: np.ndarray, size: np.ndarray, *, axis: int = 0) -> np.ndarray:
    """Mean over prompts of risks, weighted by their sizes; entries of size 0 are ignored."""
    return np.asarray(np.sum(risk * size, axis=axis, where=size > 0) / size.sum(axis=axis))


def contributions(risk: np.ndarray, size: np.ndarray) -> np.ndarray:
    """One number per prompt, (C, M), whose mean is the `sized_mean`: the linear part of a ratio if sizes differ."""
    if (size == size[0]).all():
        return risk
    mean = sized_mean(risk, size[:, None])
    return np.asarray(mean + (size / size.mean())[:, None] * (risk - mean))


def _replayed(
    estimate: np.ndarray, without: np.ndarray, se: np.ndarray, contributions: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standard error and ends of `replayed_interval`, the end on the side of the prompts' longer tail moved out."""
    left_out, apart = without
    se, low, high = replayed_interval(estimate, left_out, apart, se, len(contributions))
    return se, *skewed_ends(estimate, low, high, contributions)
