"""What a study found: completions to the reference's accuracy, and differences from it, with errors over seeds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.stats import norm, t
from statsmodels.duration.survfunc import SurvfuncRight
from statsmodels.regression.mixed_linear_model import MixedLM
from statsmodels.stats.multitest import multipletests

from llm_experiments.tasks.cells import KINDS

from .endpoints import area, completions_to, on_grid

POINTS = 101  # of the grid of completions
DRAWS = 2000  # bootstrap
LEVEL = 0.95
ROUNDING = 1e-12  # accuracies that differ by less are the same
ENDPOINTS = ("area", "matched", "greedy", "sampled", "passed", "entropy", *KINDS)
"""Mean matched accuracy over the budget; all others are at its end."""
SPEED_COLUMNS = ["design", "base", "ratio", "low", "high", "reached", "median"]
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


def speed(curves: pd.DataFrame, budget: int, reference: str, *, seed: int = 0) -> pd.DataFrame:
    """Completions that designs need for the reference's final accuracy, as shares of the budget.

    The accuracy is the mean over seeds of the reference's matched accuracy at the budget; a design's curve is its mean
    over seeds, made monotone. Intervals come from drawing seeds with replacement, the same ones for a design and the
    reference, since they share prompts and random numbers. Over base models the ratio is the geometric mean.

    Parameters
    ----------
    curves : DataFrame
        Columns ``design, base`` and those of `curves.CURVE_COLUMNS`.
    budget : int
    reference : str
    seed : int
        Of the bootstrap.

    Returns
    -------
    DataFrame
        Columns `SPEED_COLUMNS`, a row for each design and base model and one for ``all``. Infinite where the accuracy
        is not reached; the interval's end is infinite where that may be. ``reached`` is the share of runs whose own
        curve reaches it, ``median`` the Kaplan-Meier median of their completions, NaN where less than half do.
    """
    grid = np.linspace(0, budget, POINTS)
    rng = np.random.default_rng(seed)
    heights = _heights(curves, grid)
    bases = list(dict.fromkeys(base for _, base in heights))
    n_seeds = {base: len(heights[reference, base]) for base in bases}
    draws = {base: rng.integers(n_seeds[base], size=(DRAWS, n_seeds[base])) for base in bases}
    everyone = {base: np.arange(n_seeds[base])[None] for base in bases}
    rows = []
    for design in dict.fromkeys(curves["design"]):
        found = {base: _ratios(heights, design, reference, base, everyone[base], grid)[0] for base in bases}
        drawn = {base: _ratios(heights, design, reference, base, draws[base], grid) for base in bases}
        runs = {
            base: _own(heights[design, base], float(heights[reference, base][:, -1].mean()), grid) for base in bases
        }
        for base in bases:
            rows.append((design, base, found[base], *_interval(drawn[base]), *_survival(runs[base], budget)))
        pooled = _geometric([drawn[base] for base in bases])
        ratio = float(_geometric([found[base] for base in bases]))
        survival = _survival(np.concatenate(list(runs.values())), budget)
        rows.append((design, POOLED, ratio, *_interval(pooled), *survival))
    return pd.DataFrame(rows, columns=SPEED_COLUMNS)


def differences(curves: pd.DataFrame, budget: int, reference: str) -> pd.DataFrame:
    """Differences of designs from the reference in every endpoint, run by run of the same seed and base model.

    Over base models a linear mixed model of the paired differences, with a random intercept for each base model (REML).
    Of one base model their mean, with Student's quantiles.
    P-values are adjusted for the number of designs (Holm) within each endpoint; intervals are not.

    Parameters
    ----------
    curves, budget, reference
        As for `speed`.

    Returns
    -------
    DataFrame
        Columns `DIFFERENCE_COLUMNS`, a row for each design, endpoint and base model, and one for ``all`` bases. The
        reference's own rows have its means, and no difference.
    """
    values = endpoints(curves, budget)
    own = values.xs(reference, level="design")
    rows = []
    for design in dict.fromkeys(curves["design"]):
        here = values.xs(design, level="design")
        paired = here - own.loc[here.index]
        for endpoint in ENDPOINTS:
            for base, part in here[endpoint].groupby("base"):
                gap = None if design == reference else _mean(paired.loc[base, endpoint].to_numpy())
                rows.append((reference, design, endpoint, base, part.mean(), *_numbers(gap)))
            gap = None if design == reference else _mixed(paired[endpoint])
            rows.append((reference, design, endpoint, POOLED, here[endpoint].mean(), *_numbers(gap)))
    table = pd.DataFrame(rows, columns=DIFFERENCE_COLUMNS[:-1])
    tested = table["p"].notna() & (table["base"] == POOLED)
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


def _heights(curves: pd.DataFrame, grid: np.ndarray) -> dict[tuple[str, int], np.ndarray]:
    """Matched accuracy on the grid, shape (seeds, POINTS), by design and base."""
    return {
        (str(design), base): on_grid(stack, "matched", grid)
        for (design, base), stack in curves.groupby(["design", "base"], sort=False)
    }


def _ratios(
    heights: Mapping[tuple[str, int], np.ndarray],
    design: str,
    reference: str,
    base: int,
    draws: np.ndarray,
    grid: np.ndarray,
) -> np.ndarray:
    """Completions to the reference's accuracy over the budget, shape (draws,); infinite where not reached."""
    own, other = heights[design, base], heights[reference, base]
    found = np.array([completions_to(other[each, -1].mean(), own[each].mean(0), grid) for each in draws])
    return np.where(np.isnan(found), np.inf, found) / grid[-1]


def _geometric(ratios: Sequence[np.ndarray] | Sequence[float]) -> np.ndarray:
    """Geometric mean over base models; infinite where one is."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.exp(np.mean(np.log(ratios), axis=0))
    return np.where(np.isinf(ratios).any(axis=0), np.inf, mean)


def _own(heights: np.ndarray, target: float, grid: np.ndarray) -> np.ndarray:
    return np.array([completions_to(target, curve, grid) for curve in heights])


def _interval(draws: np.ndarray) -> tuple[float, float]:
    ends = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
    return float(ends[0]), float(ends[1])


def _survival(completions: np.ndarray, budget: int) -> tuple[float, float]:
    """Share of runs that arrive, and the Kaplan-Meier median over the budget."""
    arrived = ~np.isnan(completions)
    if not arrived.any():
        return 0.0, float("nan")
    fit = SurvfuncRight(np.where(arrived, completions, budget), arrived.astype(int))
    return float(arrived.mean()), float(fit.quantile(0.5)) / budget


def _mean(gap: np.ndarray) -> tuple[float, float, float, float]:
    """Mean, standard error, two-sided p-value and half the interval of one base model's paired differences."""
    freedom = len(gap) - 1
    se, mean = float(gap.std(ddof=1) / np.sqrt(len(gap))), float(gap.mean())
    p = float(2 * t.sf(abs(mean) / se, freedom)) if se > ROUNDING else float("nan")
    return mean, se, p, float(t.isf((1 - LEVEL) / 2, freedom)) * se


def _mixed(gap: pd.Series) -> tuple[float, float, float, float]:
    bases = gap.index.get_level_values("base").to_numpy()
    if len(set(bases)) == 1 or np.ptp(gap) < ROUNDING:
        return _mean(gap.to_numpy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a variance between base models of 0 lies on the boundary, as is expected
        try:
            fit = MixedLM(gap.to_numpy(), np.ones((len(gap), 1)), groups=bases).fit(reml=True)
            se = float(fit.bse_fe[0])
            return float(fit.fe_params[0]), se, float(fit.pvalues[0]), float(norm.isf((1 - LEVEL) / 2)) * se
        except np.linalg.LinAlgError:  # nearly all pairs are equal, and the variance has no maximum within
            return _mean(gap.to_numpy())


def _numbers(gap: tuple[float, float, float, float] | None) -> Sequence[float]:
    if gap is None:
        return [float("nan")] * 5
    mean, se, p, half = gap
    return [mean, se, mean - half, mean + half, p]
