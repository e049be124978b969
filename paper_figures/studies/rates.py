"""Theorem 1 and Corollary 1 as rates: study ``value_rates``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kaestat.core.bootstrap import NORMAL_975
from kaestat.theory import algorithm1_error, theorem1_bound
from paper_figures.shared.charts import BLACK, BLUE, GREY, LABELS, SKY, VERMILION, line_key, plain_log, styled
from paper_figures.shared.finding import FAILS, HOLDS, OPEN, Finding, critical, equal
from paper_figures.shared.tidy import by_measure, span, with_error
from simulations.harness import Cell
from simulations.studies.value_rates import DRIFT, GROUP_SIZE, n_visits, path, sample_size
from simulations.studies.value_rates import conclude as table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEAR = 0.1  # how near a slope at these sample sizes must come to the rate of the theory
GROWTH = 4
STEPS = tuple(1600 * GROWTH**k for k in range(7))  # at which Algorithm 1's exact MSE is taken
MEASURES = ("bias", "variance", "mse")
STYLES = {
    "kae": {"color": BLUE, "marker": "o"},
    "kae-algorithm1": {"color": SKY, "marker": "D", "markerfacecolor": "white"},
    "grpo": {"color": VERMILION, "marker": "s"},
    "reinforce++": {"color": GREY, "marker": "^"},
}
CAPTION = (
    "Slopes of logarithms: by simulation (Monte Carlo standard error), exactly at the same sample sizes, and in "
    "theory. The simulation is right if the first agrees with the second; theory is near if the second agrees with "
    f"the third within {NEAR:g}. Theory's rates are upper bounds, so a faster decrease does not contradict them."
)


def points(summary: pd.DataFrame) -> pd.DataFrame:
    """What the slopes are fitted to.

    Returns: ``design, step, h, method``, of bias, variance and MSE ``MEASURE, MEASURE_mcse, exact_MEASURE``, and the
        sample size N as ``sample_size``.
    """
    exact = [f"exact_{measure}" for measure in MEASURES]
    frame = by_measure(summary, ["design", "step", "h", "method"], (*MEASURES, *exact))
    frame = frame.drop(columns=[f"{measure}_mcse" for measure in exact])
    size = [sample_size(Cell({"design": row.design, "step": row.step})) for row in frame.itertuples()]
    return frame.assign(sample_size=size)


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """The slopes as readers see them, with both verdicts."""
    slopes = table(summary)
    simulated, theory = _verdicts(slopes)
    return pd.DataFrame(
        {
            "Quantity": slopes["quantity"],
            "Slope": [with_error(row.slope, row.se) or "no estimate" for row in slopes.itertuples()],
            "Exact": (slopes["exact_slope"].round(4) + 0.0).map("{:.4f}".format),  # + 0.0 turns -0.0 into 0.0
            "Theory": slopes["theory_slope"].map("{:.4f}".format),
            "Simulated = exact": simulated,
            "Exact near theory": theory,
        }
    )


def findings(summary: pd.DataFrame) -> list[Finding]:
    """Agreement with the exact slopes, the theorem's bounds and rates, and rivals that are not consistent."""
    slopes = table(summary)
    z = (slopes["slope"] - slopes["exact_slope"]).abs() / slopes["se"]
    _, theory = _verdicts(slopes)
    distance = (slopes["exact_slope"] - slopes["theory_slope"]).abs()
    far = slopes.loc[distance > NEAR, "quantity"]
    exact = slopes.set_index("quantity")
    at_random = exact.loc["kae-algorithm1 mse in N (random visits)"]
    local = random_visits_slopes()
    worst = exact.loc[exact.index.str.startswith("worst-case"), "exact_slope"].to_numpy()
    flat = slopes[slopes["quantity"].str.match(r"(grpo|reinforce\+\+) mse")]
    return [
        Finding(
            "The simulated slopes agree with the exact ones at the same sample sizes",
            equal(slopes["slope"], slopes["se"], slopes["exact_slope"]),
            f"largest of {len(slopes)} deviations {z.max():.1f} standard errors, {critical(len(slopes)):.1f} allowed",
        ),
        *_bounded(points(summary)),
        Finding(
            "KAE's MSE falls like N^(-2/3) where visits are at random, as in the theorem",
            tends(local, GROWTH),
            f"slope {with_error(at_random['slope'], at_random['se'])} simulated and {at_random['exact_slope']:.3f} "
            f"exactly at N up to {_size(STEPS[0] * 16):,}, which is finite size: exactly from one N to {GROWTH} times "
            f"it {', '.join(f'{value:.3f}' for value in local)}, at N up to {_size(STEPS[-1]):,}. Visited at every "
            f"step, {exact.loc['kae mse in N (sample size)', 'exact_slope']:.3f}",
            "paper",
            ("corollary1_rate",),
        ),
        Finding(
            "In the worst Lipschitz case the best bandwidth gives N^(-2/3) and no more",
            tends(worst, 10),
            f"exactly from one N to 10 times it {', '.join(f'{value:.4f}' for value in worst)}",
            "paper",
            ("corollary1_minimax",),
        ),
        Finding(
            "GRPO's and REINFORCE++'s MSE does not fall with N",
            equal(flat["slope"], flat["se"], 0.0),
            f"slopes {', '.join(with_error(row.slope, row.se) for row in flat.itertuples())}",
            "paper",
            ("corollary1_rivals",),
        ),
        Finding(
            f"At these sample sizes every slope is within {NEAR:g} of the theory's",
            HOLDS if far.empty else FAILS,
            f"{(theory == 'near').sum()} of {len(slopes)} are" + (f"; not {', '.join(far)}" if len(far) else ""),
        ),
    ]


def random_visits_slopes() -> np.ndarray:
    """Exact slopes of Algorithm 1's MSE in N between neighbouring `STEPS`; a random quarter of the steps is visited."""
    size = np.array([_size(step) for step in STEPS], dtype=float)
    mse = [
        algorithm1_error(path(step), visits=n_visits(step), group_size=GROUP_SIZE, h=float(n ** (-1 / 3))).mse
        for step, n in zip(STEPS, size, strict=True)
    ]
    return np.diff(np.log(mse)) / np.diff(np.log(size))


def tends(slopes: np.ndarray, growth: float, rate: float = -2 / 3) -> str:
    """Whether local slopes, from one size to ``growth`` times it, tend to the rate.

    Terms that the rate leaves out are smaller by a factor of order h = N^(-1/3). So the distance to the rate must
    shrink at least by ``growth^(-1/3)`` from one slope to the next; at any other rate it would not go to 0.
    """
    distance = np.abs(np.asarray(slopes) - rate)
    return HOLDS if np.all(distance[1:] <= growth ** (-1 / 3) * distance[:-1]) else FAILS


def _size(step: int) -> int:
    return GROUP_SIZE * n_visits(step) + GROUP_SIZE - 1


def _bounded(frame: pd.DataFrame) -> list[Finding]:
    rows = frame[frame["method"] == "kae-algorithm1"]
    share = {"bias": [], "variance": []}
    for row in rows.itertuples():
        visits = (row.sample_size - GROUP_SIZE + 1) // GROUP_SIZE
        h = row.h if pd.notna(row.h) else row.sample_size ** (-1 / 3)
        bound = theorem1_bound(step=row.step, visits=visits, group_size=GROUP_SIZE, h=h, drift=DRIFT)
        share["bias"].append(abs(row.exact_bias) / bound.bias)
        share["variance"].append(row.exact_variance / bound.variance)
    orders = {"bias": "O(h) + O(1 / (i h))", "variance": "O(1 / (N h))"}
    return [
        Finding(
            f"Algorithm 1's {measure} is {orders[measure]}, with the constants that the proof gives",
            HOLDS if max(values) <= 1 else FAILS,
            f"{span(values)} times that bound in {len(values)} cells"
            + ("; a factor G is missing in the printed proof" if measure == "variance" else ""),
            "paper",
            (f"theorem1_{measure}",),
        )
        for measure, values in share.items()
    ]


def figure(summary: pd.DataFrame) -> Figure:
    """Bias and variance against h; MSE against N; MSE against N where visits are rare or the drift is worst."""
    data = points(summary)
    with styled(12.0, 4.2) as drawing:
        bias, variance, size, harder = drawing.subplots(1, 4)
        by_bandwidth = data[data["design"] == "bandwidth"]
        for axes, measure, theory in ((bias, "bias", 1.0), (variance, "variance", -1.0)):
            for method in ("kae", "kae-algorithm1"):
                _curve(axes, by_bandwidth[by_bandwidth["method"] == method], "h", measure, method, theory)
            axes.set_xticks(values := sorted(by_bandwidth["h"].unique()), [f"{h:g}" for h in values])
            plain_log(axes.yaxis, subs=(1, 2, 5))
            axes.set_xlabel("Bandwidth h (log scale)")
            axes.set_title(f"{measure.capitalize()} (log scale)", loc="left", fontsize=10)
        by_size = data[data["design"] == "sample size"]
        for method, theory in (("kae", -2 / 3), ("kae-algorithm1", -2 / 3), ("grpo", None), ("reinforce++", None)):
            _curve(size, by_size[by_size["method"] == method], "sample_size", "mse", method, theory)
        size.set_title("MSE at h = N^(-1/3) (log scale)", loc="left", fontsize=10)
        for design, method, labelled in (("random visits", "kae-algorithm1", 0), ("worst case", "kae", -1)):
            part = data[(data["design"] == design) & (data["method"] == method)]
            _curve(harder, part, "sample_size", "mse", method, -2 / 3)
            point = part.iloc[labelled]
            harder.annotate(
                design,
                (point["sample_size"], point["exact_mse"]),
                xytext=(8, 4) if labelled == 0 else (-10, -2),
                textcoords="offset points",
                ha="left" if labelled == 0 else "right",
                fontsize=9,
            )
        harder.set_title("MSE, harder designs (log scale)", loc="left", fontsize=10)
        for axes in (size, harder):
            axes.set_xlabel("Sample size N (log scale)")
        keys = [line_key(LABELS[name], linestyle="", **style) for name, style in STYLES.items()]
        keys += [line_key("exact", color=BLACK), line_key("theory's slope", color=BLACK, linestyle=(0, (1, 1.5)))]
        drawing.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False)
    return drawing


def _verdicts(slopes: pd.DataFrame) -> tuple[list[str], pd.Series]:
    distance = (slopes["slope"] - slopes["exact_slope"]).abs()
    allowed = critical(len(slopes)) * slopes["se"]
    simulated = [OPEN if np.isnan(a) else HOLDS if d <= a else FAILS for d, a in zip(distance, allowed, strict=True)]
    off = slopes["exact_slope"] - slopes["theory_slope"]
    return simulated, off.map(lambda value: "near" if abs(value) <= NEAR else f"off by {value:+.2f}")


def _curve(axes: Axes, part: pd.DataFrame, x: str, measure: str, method: str, theory: float | None) -> None:
    part = part.sort_values(x)
    at, exact, mark = part[x], part[f"exact_{measure}"].abs(), STYLES[method]
    axes.plot(at, exact, color=mark["color"], linewidth=1.2)
    if theory is not None:
        line = exact.iloc[-1] * (at / at.iloc[-1]) ** theory
        axes.plot(at, line, color=mark["color"], linewidth=1.2, linestyle=(0, (1, 1.5)))
    margin = NORMAL_975 * part[f"{measure}_mcse"]
    axes.errorbar(at, part[measure].abs(), yerr=margin, linestyle="", capsize=2, elinewidth=1, markersize=5, **mark)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([], minor=True)
