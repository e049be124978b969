"""Where Assumption 6 fails, the value is not the best baseline: study ``gradient_mse``, score norms by reward."""

import pandas as pd

from paper_figures.shared.charts import LABELS
from paper_figures.shared.finding import Finding, above, below, equal
from paper_figures.shared.tidy import by_measure, text_grid, with_error
from simulations.studies.gradient_mse import BASE

METHODS = ("kae", "kae_eb", "reinforce++", "grpo")
FORMS = {"plain": "", "score-weighted": ", weighted"}
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
    names = frame["method"].map(LABELS) + frame["form"].map(FORMS)
    ratios = {ratio: f"Norm ratio {ratio:g}" for ratio in frame["wrong_norm2"].unique()}
    rows = {name: name for name in names.unique()}
    return text_grid(frame.assign(name=names), "ratio_to_oracle", "name", rows, "wrong_norm2", ratios)


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
        plain, weighted = (cells.loc[worst, name, form] for form in FORMS)
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
