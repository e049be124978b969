"""Does noise tell speed? Each design's noise and progress against the reference's, with errors over paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from scipy.stats import t

from llm_experiments.tasks.cells import KINDS

LEVEL = 0.95
PATH = ["base", "seed"]
QUANTITIES = ("value_error", "noise", "adam_noise", "answer_noise", "push")
"""All relative to the reference: error of the values; noise of an update, over its signal, at an equal number of
completions, in three units; and its push on held-out values, by the completions that the same push takes."""
RATIO_COLUMNS = ["design", "quantity", "generated", "ratio", "low", "high"]
LEVEL_COLUMNS = ["design", "quantity", "generated", "mean", "se"]
EVERYWHERE = "all"


def noise_ratios(noise: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Ratios of designs to the reference, at each place and over all of them (their geometric mean).

    Noise over signal is a ratio of means over paths, since a single path's signal is known badly. Errors: jackknife
    over paths of the ratio's logarithm, with Student's quantile.

    Parameters
    ----------
    noise : DataFrame
        Columns `measured.NOISE_COLUMNS`, every design at every place of every path.
    reference : str

    Returns
    -------
    DataFrame
        Columns `RATIO_COLUMNS`. NaN where a signal is not positive.
    """
    places, designs = sorted(noise["generated"].unique()), list(dict.fromkeys(noise["design"]))
    rows = []
    for quantity in QUANTITIES:
        whole, left_out = _jackknifed(noise, lambda part, name=quantity: _logs(part, name, reference))
        for design in designs:
            for place in [*places, EVERYWHERE]:
                chosen = places if place == EVERYWHERE else [place]
                mean = float(whole.loc[design, chosen].mean())
                others = np.array([each.loc[design, chosen].mean() for each in left_out])
                reach = _student(len(others)) * _jackknife_se(others)
                rows.append((design, quantity, place, *np.exp([mean, mean - reach, mean + reach]).tolist()))
    return pd.DataFrame(rows, columns=RATIO_COLUMNS)


def noise_levels(noise: pd.DataFrame) -> pd.DataFrame:
    """Means over paths, with standard errors, at each place and over all of them.

    Parameters
    ----------
    noise : DataFrame
        As for `noise_ratios`.

    Returns
    -------
    DataFrame
        Columns `LEVEL_COLUMNS`, for value errors, cosines, clipping, and effects by kind of problem.
    """
    effects = [f"{name}_{kind}" for name in ("push", "mean", "cost") for kind in KINDS]
    rows = []
    for quantity in ["value_error", "cosine", "clipped", *effects]:
        for design, own in noise.dropna(subset=quantity).groupby("design", sort=False):
            each = own.pivot_table(index=PATH, columns="generated", values=quantity)
            for place in [*each.columns, EVERYWHERE]:
                values = each.mean(axis=1) if place == EVERYWHERE else each[place]
                rows.append((design, quantity, place, float(values.mean()), float(values.sem())))
    return pd.DataFrame(rows, columns=LEVEL_COLUMNS)


def rank_correlations(ratios: pd.DataFrame, speed: pd.Series, *, draws: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Spearman's between each quantity and the completions that designs were seen to need.

    Parameters
    ----------
    ratios : DataFrame
        From `noise_ratios`.
    speed : Series
        By design; infinite where the accuracy is not reached: these tie at the end.
    draws, seed : int
        Of a bootstrap over designs, for 95 % intervals.

    Returns
    -------
    DataFrame
        Columns ``quantity, correlation, low, high, designs``.
    """
    rng = np.random.default_rng(seed)
    rows = []
    everywhere = ratios[ratios["generated"] == EVERYWHERE].set_index("design")
    for quantity in QUANTITIES:
        own = everywhere.loc[everywhere["quantity"] == quantity, "ratio"]
        both = pd.DataFrame({"own": own, "speed": speed}).dropna().to_numpy()
        found = [_spearman(both[each]) for each in rng.integers(len(both), size=(draws, len(both)))]
        low, high = np.nanquantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        rows.append((quantity, _spearman(both), float(low), float(high), len(both)))
    return pd.DataFrame(rows, columns=["quantity", "correlation", "low", "high", "designs"])


def _logs(noise: pd.DataFrame, quantity: str, reference: str) -> pd.DataFrame:
    """Logarithms of ratios to the reference, designs by places."""
    means = noise.pivot_table(index=["design", "generated"], sort=False)
    if quantity == "value_error":
        levels = means["value_error"]
    elif quantity == "push":
        levels = means["spent"] / means[[f"push_{kind}" for kind in KINDS]].mean(axis=1)
    else:
        levels = means["spent"] * means[quantity] / means[quantity.replace("noise", "signal")]
    table = levels.where(levels > 0).rename("level").reset_index()
    table = table.pivot_table(index="design", columns="generated", values="level", sort=False, dropna=False)
    return np.log(table) - np.log(table.loc[reference])


def _jackknifed(
    noise: pd.DataFrame, statistic: Callable[[pd.DataFrame], pd.DataFrame]
) -> tuple[pd.DataFrame, Sequence[pd.DataFrame]]:
    """Of all paths, and without each."""
    path = noise.groupby(PATH).ngroup()
    return statistic(noise), [statistic(noise[path != each]) for each in range(path.nunique())]


def _jackknife_se(left_out: np.ndarray) -> float:
    n = len(left_out)
    return float(np.sqrt((n - 1) / n * np.square(left_out - left_out.mean()).sum()))


def _student(n: int) -> float:
    return float(t.ppf((1 + LEVEL) / 2, n - 1))


def _spearman(pairs: np.ndarray) -> float:
    ranks = pd.DataFrame(pairs).rank()
    return float(ranks[0].corr(ranks[1]))
