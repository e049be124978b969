"""Bandwidth selectors against the best fixed bandwidth: study ``bandwidth_selectors``."""

import pandas as pd

from paper_figures.shared.finding import Finding, below
from paper_figures.shared.tidy import number, span, with_error
from simulations.studies.bandwidth_selectors import conclude

PATHS = {"static": "Static", "random_walk": "Random walk", "linear": "Linear in the logit"}
SIZES = (1, 8)
CAPTION = (
    "Value MSE of KAE with each selector, relative to the best fixed bandwidth for the truth (Monte Carlo standard "
    "error), and the mean bandwidth in steps that it chose. Rules that look at no rewards: fixed at 10 steps, a "
    "fraction of the elapsed steps, and N^(-1/3) of them."
)


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """Every path, group size and selector.

    summary: Of the study ``bandwidth_selectors``.
    Returns: ``path, group_size, method, regret_ratio, regret_ratio_mcse, bandwidth, bandwidth_mcse, oracle_bandwidth``;
        an infinite oracle bandwidth is the mean of the whole past.
    """
    return conclude(summary).rename(columns={"mcse": "regret_ratio_mcse"})


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each selector, a column for each path and group size: regret ratio, then bandwidth."""
    cells = table(summary).set_index(["method", "path", "group_size"])
    rows, settings = [], [(path, size) for path in PATHS for size in SIZES]
    for method in _order(summary):
        chosen = [cells.loc[(method, *setting)] for setting in settings]
        text = [f"{with_error(row.regret_ratio, row.regret_ratio_mcse)}; {row.bandwidth:.1f}" for row in chosen]
        rows.append((method, *text))
    best = [f"1; {number(row.oracle_bandwidth)}" for row in chosen]  # the same for every method
    rows.append(("best fixed bandwidth", *best))
    heads = [f"{name}, G = {size}" for name in PATHS.values() for size in SIZES]
    return pd.DataFrame(rows, columns=["Selector", *heads])


def findings(summary: pd.DataFrame) -> list[Finding]:
    """Data-driven selectors against fixed rules."""
    frame = table(summary)
    best = _order(summary)[0]
    chosen = frame[frame["method"] == best]
    moving = chosen[chosen["path"] != "static"]
    fixed = frame[frame["method"] == "fixed"]
    forward = frame[frame["method"] == "forward_cv"]
    key = ["path", "group_size"]
    pair = forward.set_index(key), fixed.set_index(key)
    error = (pair[0]["regret_ratio_mcse"] ** 2 + pair[1]["regret_ratio_mcse"] ** 2) ** 0.5  # unpaired, so too large
    return [
        Finding(
            "Forward cross-validation has a smaller value MSE than the fixed bandwidth of 10 steps on every path",
            below(pair[0]["regret_ratio"] - pair[1]["regret_ratio"], error),
            f"{span(forward['regret_ratio'])} against {span(fixed['regret_ratio'])} times the best fixed bandwidth's",
        ),
        Finding(
            f"The best selector ({best}) is within 25 % of the best fixed bandwidth where values move",
            below(moving["regret_ratio"], moving["regret_ratio_mcse"], 1.25),
            f"{span(moving['regret_ratio'])} times its MSE",
        ),
    ]


def _order(summary: pd.DataFrame) -> list[str]:
    """Selectors from the best on, by the geometric mean of their regret ratios."""
    ratio = table(summary).groupby("method")["regret_ratio"].apply(lambda r: r.prod() ** (1 / len(r)))
    return list(ratio.sort_values(kind="stable").index)
