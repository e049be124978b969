"""The figures of the methods' pages, drawn from ``method_spread.csv`` in the colours of the pages."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from choice_figures import in_scheme, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kaestat.baselines.method import Method

FOLDER = Path(__file__).parent
KINDS = {
    "static": "still",
    "random_walk": "random walk",
    "linear": "along a line",
    "jump": "one jump",
    "inverse_step": "ever slower, either way",
    "saturating": "ever slower, upwards",
}
BIAS, VARIANCE = "#D55E00", "#56B4E9"
FULL = 30.0  # the ratio of full colour


@cache
def table() -> pd.DataFrame:
    """``method_spread.csv`` with ``least``, the least MSE of all methods in the same setting."""
    frame = pd.read_csv(FOLDER / "method_spread.csv")
    return frame.assign(least=frame.groupby(["path", "group_size"])["mse"].transform("min"))


def with_figure(page: str, method: Method) -> str:
    """The page of a method with its figure before the example; as it is where there are no numbers."""
    if method.name not in set(table()["method"]):
        return page
    before, example, after = page.rpartition("## Example\n")
    return before + section(method) + example + after


def section(method: Method) -> str:
    """What a method's page shows of it."""
    picture = f"../figures/method_{method.page}"
    text = f"Squared bias and variance of the value of {method.name}, and its error relative to the best method's"
    return f"""## Where it errs, and where it wins

<div class="figure" markdown>
![{text}]({picture}_light.svg#only-light)
![{text}]({picture}_dark.svg#only-dark)
</div>

Value MSE in squared bias and variance on six kinds of paths of 30 visits, and on the right that MSE divided by that
of the best method of [the comparison](../choose.md#every-method-on-one-number); 1 is where it wins.
Kernel methods at a fixed bandwidth, errors in `docs/figures/method_spread.csv`.

"""


def figure(method: str, faint: str) -> Figure:
    """Squared bias and variance for one and eight completions, and the ratio to the best method."""
    from matplotlib.figure import Figure

    own = table()[table()["method"] == method].set_index(["group_size", "path"])
    sizes = sorted({size for size, _ in own.index})
    drawn = Figure(figsize=(10.4, 2.9), layout="constrained")
    panels = drawn.subplots(
        1, len(sizes) + 1, sharey=True, width_ratios=[*(1.0 for _ in sizes), 0.25 + 0.2 * len(sizes)]
    )
    for axes, size in zip(panels, sizes, strict=False):
        _bars(axes, own.loc[size].reindex(list(KINDS)), faint)
        axes.set_title(f"G = {size}", loc="left", fontsize=10, fontweight="bold")
    _ratios(panels[-1], own, sizes)
    panels[0].set_yticks(range(len(KINDS)), list(KINDS.values()))
    handles, labels = panels[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper right", ncols=len(labels), frameon=False)
    return drawn


def _bars(axes: Axes, rows: pd.DataFrame, faint: str) -> None:
    places = range(len(rows))
    bias2 = 1e3 * rows["bias2"].clip(lower=0)
    axes.barh(places, bias2, height=0.62, color=BIAS, label="squared bias")
    axes.barh(places, 1e3 * rows["variance"], left=bias2, height=0.62, color=VARIANCE, label="variance")
    ink = axes.xaxis.label.get_color()
    axes.plot(1e3 * rows["least"], places, "|", color=ink, markersize=13, markeredgewidth=2, label="best method")
    axes.margins(x=0.06)
    axes.set_xlabel("Value MSE (× 0.001)")
    axes.grid(axis="x", color=faint, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)


def _ratios(axes: Axes, own: pd.DataFrame, sizes: list[int]) -> None:
    from matplotlib.colors import LogNorm

    own = own.reset_index().assign(ratio=lambda rows: rows["mse"] / rows["least"])
    ratio = own.pivot_table(index="path", columns="group_size", values="ratio").reindex(list(KINDS))[sizes]
    axes.imshow(ratio.clip(upper=FULL), norm=LogNorm(1, FULL), cmap="Oranges", aspect="auto")
    for row, kind in enumerate(KINDS):
        for place, size in enumerate(sizes):
            each = ratio.loc[kind, size]
            color = "white" if each > 10 else "#1f1f1f"
            weight = "bold" if each < 1.005 else "normal"
            axes.text(place, row, short(each), ha="center", va="center", color=color, fontsize=9, fontweight=weight)
    axes.set_xticks(range(len(sizes)), [f"G = {size}" for size in sizes])
    axes.set_title("MSE / best method's", loc="left", fontsize=10, fontweight="bold")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def drawn(method: str, scheme: str) -> bytes:
    """The figure of a method as SVG, in the colours of a scheme of the pages ("light" or "dark")."""
    return in_scheme(partial(figure, method), scheme)
