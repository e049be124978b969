"""All methods against each other and against the Bayes filter bound: study ``all_methods``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from kaestat.report.plots import STYLE
from paper_figures.shared.charts import BLACK, BLUE, GREEN, LABELS, Mark, dot_plot, key, line_key, plain_log
from paper_figures.shared.finding import Finding, above, below
from paper_figures.shared.tidy import by_measure, span, with_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOUND = "known parameters"
MARKS = {1: Mark(GREEN, "D", filled=False), 8: Mark(BLUE, "o")}
PATHS = {
    "static": "Static",
    "inverse_step": "Drift 1/i",
    "linear": "Linear",
    "saturating": "Saturating",
    "jump": "One jump",
    "random_walk": "Random walk",
}
CAPTION = (
    "Value MSE relative to KAE's (bandwidth 10, triangular kernel) on the same data, by path of the values and group "
    "size G; Monte Carlo standard error. The Bayes filter knows the law of the values and is a bound; it is there for "
    "the paths it can follow exactly. Every method at its default parameters, nothing tuned to the path."
)


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """Every path, group size and method.

    Parameters
    ----------
    summary : DataFrame
        Of the study ``all_methods``.

    Returns
    -------
    DataFrame
        ``path, group_size, method, mse, mse_mcse, ratio_to_kae, ratio_to_kae_mcse, ratio_to_bound,
        ratio_to_bound_mcse, n``; the last ratio is empty where the bound is not known.
    """
    return by_measure(summary, ["path", "group_size", "method"], ("mse", "ratio_to_kae", "ratio_to_bound"))


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each method, a column for each path and group size: MSE relative to KAE's."""
    frame = table(summary).set_index(["method", "path", "group_size"])[["ratio_to_kae", "ratio_to_kae_mcse"]]
    rows = []
    for method in _order(summary):
        text = [
            with_error(*frame.loc[method, path, size]) if (method, path, size) in frame.index else ""
            for path in PATHS
            for size in MARKS
        ]
        rows.append((LABELS.get(method, method), *text))
    return pd.DataFrame(rows, columns=["Method", *(f"{name}, G = {size}" for name in PATHS.values() for size in MARKS)])


def findings(summary: pd.DataFrame) -> list[Finding]:
    """KAE against the paper's rivals, KAE-EB against KAE, and the bound."""
    frame = table(summary)
    found = []
    for other in ("grpo", "reinforce++"):
        rows = frame[frame["method"] == other]
        found.append(
            Finding(
                f"KAE's values have a smaller MSE than {LABELS[other]}'s on every path",
                above(rows["ratio_to_kae"], rows["ratio_to_kae_mcse"], 1.0),
                f"{LABELS[other]} has {span(rows['ratio_to_kae'])} times KAE's MSE",
            )
        )
    found.append(_rival(frame))
    shrunk = frame[frame["method"] == "kae_eb"]
    worst = shrunk.loc[shrunk["ratio_to_kae"].idxmax()]
    found.append(
        Finding(
            "KAE-EB's values have a smaller MSE than KAE's on every path",
            below(shrunk["ratio_to_kae"], shrunk["ratio_to_kae_mcse"], 1.0),
            f"{span(shrunk['ratio_to_kae'])} times KAE's MSE, the largest at path {PATHS[worst['path']].lower()}, "
            f"G = {worst['group_size']}",
        )
    )
    bounded = frame[frame["ratio_to_bound"].notna() & (frame["method"] != BOUND)]
    ours = bounded[bounded["method"] == "kae_eb"]["ratio_to_bound"]
    found.append(
        Finding(
            "No method has a smaller MSE than the Bayes filter bound",
            above(bounded["ratio_to_bound"], bounded["ratio_to_bound_mcse"], 1.0),
            f"the best comes to {bounded['ratio_to_bound'].min():.3f} times the bound, KAE-EB to {span(ours)}",
        )
    )
    return found


def figure(summary: pd.DataFrame) -> Figure:
    """One panel per path: each method's MSE relative to KAE's."""
    import matplotlib
    from matplotlib.figure import Figure

    frame, order = table(summary), _order(summary)
    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(11.0, 8.6), layout="constrained")
        panels = drawing.subplots(2, 3, sharex=True, sharey=True)
        for axes, (path, name) in zip(panels.flat, PATHS.items(), strict=True):
            axes.axvline(1.0, color=BLACK, linewidth=1.0)
            part = frame[frame["path"] == path]
            dot_plot(axes, part, row="method", rows=order, series="group_size", marks=MARKS, x="ratio_to_kae")
            plain_log(axes.xaxis, subs=(1, 3))
            axes.set_title(name, loc="left", fontsize=10, fontweight="bold")
        for axes in panels[-1]:
            axes.set_xlabel("Value MSE relative to KAE's (log scale)")
        keys = [key(mark, f"G = {size}") for size, mark in MARKS.items()] + [line_key("KAE", color=BLACK)]
        drawing.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False)
    return drawing


def _order(summary: pd.DataFrame) -> list[str]:
    """The bound, then methods from the best on, by their geometric mean over paths at the largest group size."""
    frame = table(summary)
    mean = (
        frame[frame["group_size"] == max(MARKS)]
        .groupby("method")["ratio_to_kae"]
        .apply(lambda r: r.prod() ** (1 / len(r)))
    )
    return [BOUND, *mean.drop(BOUND).sort_values(kind="stable").index]


def _rival(frame: pd.DataFrame) -> Finding:
    """Whether KAE is the best of all methods that are not built on it."""
    others = frame[~frame["method"].isin(("kae", "kae_stream", "kae_eb", BOUND))]
    best = others.loc[others.groupby(["path", "group_size"])["ratio_to_kae"].idxmin()]
    ahead = best[best["ratio_to_kae"] < 1]
    names = ", ".join(sorted(LABELS.get(name, name) for name in ahead["method"].unique()))
    return Finding(
        "KAE has the smallest MSE of all methods but KAE-EB on every path",
        above(best["ratio_to_kae"], best["ratio_to_kae_mcse"], 1.0),
        f"{len(ahead)} of {len(best)} settings have a better one"
        + (f" ({names}), at best {best['ratio_to_kae'].min():.2f} times KAE's MSE" if len(ahead) else ""),
    )
