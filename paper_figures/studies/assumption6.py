"""Where Assumption 6 fails, the value is not the best baseline: study ``gradient_mse``, score norms by reward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from paper_figures.shared.charts import BLACK, BLUE, GREEN, LABELS, Mark, dot_plot, key, line_key, styled
from paper_figures.shared.comparison import NORMAL_975
from paper_figures.shared.finding import Finding, above, below, equal
from paper_figures.shared.tidy import by_measure, with_error
from simulations.studies.gradient_mse import BASE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("kae", "kae_eb", "reinforce++", "grpo")
MARKS = {"plain": Mark(BLUE, "o"), "score-weighted": Mark(GREEN, "D", filled=False)}
CAPTION = (
    "Gradient MSE relative to that with the true value as baseline (Monte Carlo standard error), where a wrong "
    "completion's squared score norm is 1, 2 or 5 times a right one's. Weighted: rewards averaged with squared score "
    "norms as weights. Best baseline: E[W Z] / E[W], known exactly."
)


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """Every norm ratio and method.

    summary: Of the study ``gradient_mse``.
    Returns: ``wrong_norm2, method, form, ratio_to_oracle, ratio_to_oracle_mcse, distance_to_best,
        distance_to_best_mcse, n``; form is "plain" or "score-weighted", distance_to_best the mean squared distance to
        the best baseline.
    """
    factors = [name for name in BASE if name != "wrong_norm2"]
    chosen = summary[(summary[factors] == pd.Series(BASE)[factors]).all(axis=1)]
    frame = by_measure(chosen, ["wrong_norm2", "method"], ("ratio_to_oracle", "distance_to_best"))
    form = frame["method"].str.endswith(", weighted").map({True: "score-weighted", False: "plain"})
    frame.insert(2, "form", form)
    return frame.assign(method=frame["method"].str.removesuffix(", weighted")).sort_values(
        "wrong_norm2", kind="stable", ignore_index=True
    )


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each method and form, a column for each norm ratio."""
    frame = table(summary)
    text = [with_error(row.ratio_to_oracle, row.ratio_to_oracle_mcse) for row in frame.itertuples()]
    names = [LABELS[row.method] + (", weighted" if row.form == "score-weighted" else "") for row in frame.itertuples()]
    wide = frame.assign(text=text, Baseline=names).pivot_table(
        index="Baseline", columns="wrong_norm2", values="text", aggfunc="first", sort=False
    )
    return wide.rename(columns=lambda ratio: f"Norm ratio {ratio:g}").rename_axis(columns=None).reset_index()


def findings(summary: pd.DataFrame) -> list[Finding]:
    """What the violation costs, and what weighting gains."""
    cells = table(summary).set_index(["wrong_norm2", "method", "form"])
    worst = max(cells.index.get_level_values("wrong_norm2"))
    ratio, error = "ratio_to_oracle", "ratio_to_oracle_mcse"
    best = cells.loc[worst, "best_baseline", "plain"]
    under = cells.loc[1, "best_baseline", "plain"]
    found = [
        Finding(
            "The value is the best baseline where Assumption 6 holds",
            equal([under[ratio]], [under[error]], 1.0),
            f"there the best baseline has {with_error(under[ratio], under[error])} of its gradient MSE",
            "paper",
            ("assumption6",),
        ),
        Finding(
            "The value stays the best baseline where Assumption 6 fails",
            above([best[ratio]], [best[error]], 1.0),
            f"at norm ratio {worst:g} the best baseline has {with_error(best[ratio], best[error])} of its gradient MSE",
        ),
    ]
    for name in METHODS:
        plain, weighted = (cells.loc[worst, name, form] for form in MARKS)
        spread = (plain[error] ** 2 + weighted[error] ** 2) ** 0.5  # unpaired, so too large
        found.append(
            Finding(
                f"Score weights lower the gradient MSE of {LABELS[name]} at norm ratio {worst:g}",
                below([weighted[ratio] - plain[ratio]], [spread]),
                f"{with_error(weighted[ratio], weighted[error])} against {with_error(plain[ratio], plain[error])} of "
                "the oracle's",
            )
        )
    return found


def figure(summary: pd.DataFrame) -> Figure:
    """One panel per norm ratio: each method, plain and weighted, relative to the oracle."""
    frame = table(summary)
    ratios = sorted(frame["wrong_norm2"].unique())
    with styled(10.5, 3.2) as drawing:
        panels = drawing.subplots(1, len(ratios), sharey=True, sharex=True)
        for axes, wrong in zip(panels, ratios, strict=True):
            part = frame[frame["wrong_norm2"] == wrong]
            best = part[part["method"] == "best_baseline"].iloc[0]
            margin = NORMAL_975 * best["ratio_to_oracle_mcse"]
            axes.axvspan(best["ratio_to_oracle"] - margin, best["ratio_to_oracle"] + margin, color=GREEN, alpha=0.2)
            axes.axvline(best["ratio_to_oracle"], color=GREEN, linestyle=(0, (4, 2)), linewidth=1.2)
            axes.axvline(1.0, color=BLACK, linewidth=1.0)
            dot_plot(axes, part, row="method", rows=METHODS, series="form", marks=MARKS, x="ratio_to_oracle")
            axes.set_title(f"Norm ratio {wrong:g}" + (" (Assumption 6 holds)" if wrong == 1 else ""), fontsize=10)
        panels[len(ratios) // 2].set_xlabel("Gradient MSE relative to that with the true value as baseline")
        keys = [key(mark, form) for form, mark in MARKS.items()]
        keys += [line_key("true value", color=BLACK), line_key("best baseline", color=GREEN, linestyle=(0, (4, 2)))]
        drawing.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False)
    return drawing
