"""What a study found: completions to the best group design's accuracy, and paired differences, with errors over bases.

Base models are what varies between one use of a design and the next, and runs on one of them are alike. So every
interval and p-value here is Student's over base models, whatever the number of runs on each.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.stats import t
from statsmodels.stats.multitest import multipletests

from llm_experiments.tasks.cells import KINDS
from llm_experiments.training.stacked.config import Design

from .endpoints import area, completions_to, on_grid, rising

POINTS = 101  # of the grid of completions
LEVEL = 0.95
ROUNDING = 1e-12  # accuracies that differ by less are the same
FRACTIONS = (0.3, 0.5, 0.7, 1.0)
"""Parts of the budget at which the best group design's accuracy is the target."""
ENDPOINTS = ("area", "matched", "greedy", "sampled", "passed", "entropy", *KINDS)
"""Mean matched accuracy over the budget; all others are at its end."""
SPEED_COLUMNS = ["design", "fraction", "base", "ratio", "low", "high"]
DIFFERENCE_COLUMNS = [
    "reference",
    "design",
    "endpoint",
    "base",
    "mean",
    "difference",
    "se",
    "low",
    "high",
    "p",
    "p_holm",
]
POOLED = "all"
BEST_GROUP = "best group design"
"""Stands for a different design on each base model, as a reference."""


def best_groups(rates: pd.DataFrame, designs: Mapping[str, Design]) -> dict[int, str]:
    """The best design with more than one completion per prompt on each base model, by the seeds that choose rates.

    These seeds are not compared, so that the choice does not flatter the design.

    rates: Columns `llm_experiments.study.run.RATE_COLUMNS`.
    Raises ValueError if no design of the table has groups.
    """
    groups = [name for name, design in designs.items() if design.group_size > 1]
    own = rates[rates["chosen"] & rates["design"].isin(groups)]
    if own.empty:
        raise ValueError(
            "designs: none has more than one completion per prompt, so that there is no group to compare with."
        )
    best = own.loc[own.groupby("base")["area"].idxmax()]
    return dict(zip(best["base"].astype(int), best["design"].astype(str), strict=True))


def speed(curves: pd.DataFrame, budget: int, groups: Mapping[int, str]) -> pd.DataFrame:
    """Completions that designs need for what the best group design reaches, as shares of what that one needs.

    The target is the accuracy of the best group design's curve after a part of the budget, a curve being the mean over
    seeds of matched accuracy, made monotone. Over base models the ratio is the geometric mean, with Student's interval.

    curves: Columns ``design, base`` and those of `curves.CURVE_COLUMNS`, every design on every base model.
    groups: The best group design on each base model; see `best_groups`.
    Returns: Columns `SPEED_COLUMNS`, a row for each design, `FRACTIONS` and base model, and one for ``all`` of them.
        The ratio is infinite where a design does not reach the accuracy within the budget. If that happens on some base
        model, ``low`` counts the whole budget there, the least that the design can need, and ``high`` is infinite.
    """
    grid = np.linspace(0, budget, POINTS)
    means = {
        (str(design), int(base)): on_grid(stack, "matched", grid).mean(0)
        for (design, base), stack in curves.groupby(["design", "base"], sort=False)
    }
    rows: list[tuple[str, float, int | str, float, float, float]] = []
    for design in dict.fromkeys(curves["design"].astype(str)):
        for fraction in FRACTIONS:
            ratios = {}
            for base, group in groups.items():
                target = float(np.interp(fraction * budget, grid, rising(means[group, base])))
                needed = completions_to(target, means[design, base], grid)
                needed = max(needed, grid[1])  # a target at the start would make the logarithm infinite
                ratios[base] = float("inf") if np.isnan(needed) else needed / (fraction * budget)
            rows += [(design, fraction, base, ratio, np.nan, np.nan) for base, ratio in ratios.items()]
            rows.append((design, fraction, POOLED, *_geometric(np.array(list(ratios.values())), 1 / fraction)))
    return pd.DataFrame(rows, columns=SPEED_COLUMNS)


def differences(curves: pd.DataFrame, budget: int, reference: str | Mapping[int, str]) -> pd.DataFrame:
    """Differences of designs from a reference in every endpoint, paired by base model and seed.

    The pairs' mean on each base model is one number; over base models their mean has Student's interval and p-value.
    P-values are adjusted for the number of designs (Holm) within each endpoint; intervals are not.

    curves, budget: As for `speed`.
    reference: One design, or one for each base model, which is then named `BEST_GROUP`.
    Returns: Columns `DIFFERENCE_COLUMNS`, a row for each design, endpoint and base model, and one for ``all`` of them.
        On one base model the standard error is over seeds, and there is no p-value. The reference's own rows have no
        difference.
    """
    values = endpoints(curves, budget)
    bases = dict.fromkeys(values.index.get_level_values("base").tolist())
    named = {base: reference for base in bases} if isinstance(reference, str) else dict(reference)
    called = reference if isinstance(reference, str) else BEST_GROUP
    own = pd.concat([values.loc[[design]].xs(base, level="base", drop_level=False) for base, design in named.items()])
    own = own.droplevel("design")
    rows = []
    for design in dict.fromkeys(values.index.get_level_values("design")):
        here = values.xs(design, level="design")
        paired = here - own.loc[here.index]
        for endpoint in ENDPOINTS:
            gaps = paired[endpoint].groupby("base", sort=False)
            for base, part in gaps:
                mean = here.loc[base, endpoint].mean()
                alone = [part.mean(), part.sem()] if design != named[base] else [np.nan, np.nan]
                rows.append((called, design, endpoint, base, mean, *alone, *[np.nan] * 3))
            gap = student(gaps.mean().to_numpy()) if design != reference else [np.nan] * 5
            rows.append((called, design, endpoint, POOLED, here[endpoint].groupby("base").mean().mean(), *gap))
    table = pd.DataFrame(rows, columns=DIFFERENCE_COLUMNS[:-1])
    tested = table["p"].notna()
    table["p_holm"] = np.nan
    for _, part in table[tested].groupby("endpoint"):
        table.loc[part.index, "p_holm"] = multipletests(part["p"], method="holm")[1]
    return table


def endpoints(curves: pd.DataFrame, budget: int) -> pd.DataFrame:
    """Every run's `ENDPOINTS`, indexed by ``design, base, seed``."""
    grid = np.linspace(0, budget, POINTS)
    rows = {}
    for (design, base), stack in curves.groupby(["design", "base"], sort=False):
        found = {name: on_grid(stack, name, grid[-1:])[:, 0] for name in ENDPOINTS if name not in ("area", "passed")}
        found["area"] = area(on_grid(stack, "matched", grid), grid)
        found["passed"] = stack.dropna(subset="passed").groupby("seed")["passed"].last().to_numpy()
        for place, run in enumerate(sorted(stack["seed"].unique())):
            rows[design, base, run] = {name: float(each[place]) for name, each in found.items()}
    table = pd.DataFrame.from_dict(rows, orient="index")[list(ENDPOINTS)]
    table.index = pd.MultiIndex.from_tuples(table.index, names=["design", "base", "seed"])
    return table


def student(values: np.ndarray) -> tuple[float, float, float, float, float]:
    """Mean, standard error, both ends of the interval, and the two-sided p-value of a mean of 0.

    values (ndarray, shape (n,)): One for each base model. Of a single one there is no error.
    """
    mean, n = float(np.mean(values)), len(values)
    if n == 1:
        return mean, *[float("nan")] * 4
    se = float(np.std(values, ddof=1) / np.sqrt(n))
    half = float(t.isf((1 - LEVEL) / 2, n - 1)) * se
    p = float(2 * t.sf(abs(mean) / se, n - 1)) if se > ROUNDING else float("nan")
    return mean, se, mean - half, mean + half, p


def _geometric(ratios: np.ndarray, least: float) -> tuple[float, float, float]:
    """Geometric mean and Student's interval; ``least`` is what a ratio that is not known can be at least."""
    reached = np.isfinite(ratios)
    with np.errstate(divide="ignore"):
        mean, _, low, high, _ = student(np.log(np.where(reached, ratios, least)))
    if reached.all():
        return float(np.exp(mean)), float(np.exp(low)), float(np.exp(high))
    return float("inf"), float(np.exp(low)), float("inf")
