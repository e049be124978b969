"""How near each method comes to the best baseline of every prompt: study ``best_baselines``."""

import pandas as pd

from paper_figures.shared.charts import LABELS
from paper_figures.shared.finding import Finding, above, below
from paper_figures.shared.tidy import by_measure, span, text_grid, with_error
from simulations.studies.best_baselines import REGIMES

CELL = ["regime", "group_size"]
OURS, PLAIN = "kae_eb, weighted", "kae_eb"
AVERAGES = ("kae_eb", "kae", "reinforce++")
ROWS = (*(f"{name}, weighted" for name in AVERAGES), *AVERAGES, "bayes_filter", "rloo", "none", "oracle")
NAMES = LABELS | {f"{name}, weighted": f"{LABELS[name]}, weighted" for name in AVERAGES}
DEPENDENT = tuple(name for name, regime in REGIMES.items() if regime.ratio != 1 or regime.slope)
INDEPENDENT = "independent"
LIMIT, LOSS = 1.05, 0.01
CAPTION = (
    "Noise of the gradient E[W (R - b)^2], relative to that of the best baseline b* = E[W R] / E[W] of every prompt "
    "(Monte Carlo standard error). Weighted: with a completion's squared score norm W. Learned bandwidths throughout."
)


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """Every setting and method.

    summary: Of the study ``best_baselines``.
    Returns: ``regime, group_size, method, noise, noise_mcse, ratio_to_best, ratio_to_best_mcse, over_plain,
        over_plain_mcse, n``; the best baseline has no ratio, and over_plain is what weights add to the ratio of KAE-EB.
    """
    return by_measure(summary, [*CELL, "method"], ("noise", "ratio_to_best", "over_plain"))


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each setting, a column for each method: noise relative to the best."""
    frame = table(summary)
    cells = frame["regime"] + ", G = " + frame["group_size"].astype(str)
    rows, columns = {cell: cell for cell in cells.unique()}, {name: NAMES[name] for name in ROWS}
    return text_grid(frame.assign(cell=cells), "ratio_to_best", "cell", rows, "method", columns)


def findings(summary: pd.DataFrame) -> list[Finding]:
    """How near weighted KAE-EB comes to the best, what weights cost where they tell nothing, and the true value."""
    frame = table(summary)
    ours = frame[frame["method"] == OURS]
    large, worst = ours[ours["group_size"] >= 4], ours.loc[ours["ratio_to_best"].idxmax()]
    idle = ours[ours["regime"] == INDEPENDENT]
    both = frame[frame["regime"].isin(DEPENDENT)].pivot_table(
        index=CELL, columns="method", values=["ratio_to_best", "ratio_to_best_mcse"]
    )
    value, own = (both["ratio_to_best", name] for name in ("oracle", OURS))
    spread = sum(both["ratio_to_best_mcse", name] ** 2 for name in ("oracle", OURS)) ** 0.5  # unpaired, so too large
    return [
        Finding(
            f"{NAMES[OURS]} has at most {LIMIT:g} times the least noise with four completions or more",
            below(large["ratio_to_best"], large["ratio_to_best_mcse"], LIMIT),
            f"{span(large['ratio_to_best'], '.3f')} times",
        ),
        Finding(
            f"{NAMES[OURS]} has at most {LIMIT:g} times the least noise at every group size",
            below(ours["ratio_to_best"], ours["ratio_to_best_mcse"], LIMIT),
            f"at most {with_error(worst['ratio_to_best'], worst['ratio_to_best_mcse'])} ({worst['regime']}, "
            f"G = {worst['group_size']}); what is left is the error of the value itself",
        ),
        Finding(
            f"Where weights tell nothing (Assumption 6), they cost {NAMES[PLAIN]} at most {LOSS:g} of the least noise",
            below(idle["over_plain"], idle["over_plain_mcse"], LOSS),
            f"{span(idle['over_plain'], '.4f')}",
        ),
        Finding(
            f"Where wrong answers weigh more, the true value has more noise than {NAMES[OURS]}",
            above(value - own, spread),
            f"{span(value)} times the least, against {span(own)}",
        ),
    ]
