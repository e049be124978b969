"""Tables of a study of policies, as text."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from llm_experiments.study.contrasts import POOLED

SPEED_CAPTION = (
    "Completions to what the best group design reaches at matched temperature after {budget:,} completions, as a share "
    "of them: geometric mean over {bases} with {seeds} each, with Student's 95 % interval over base models; then the "
    "same after 30, 50 and 70 % of the budget. The best group design was chosen on each base model by other seeds "
    "({groups})."
)
AREA_CAPTION = (
    "Mean accuracy over the budget of {budget:,} completions at matched temperature, and its paired differences from "
    "{recommended} and from the best group design of each base model, ± one standard error over {bases} with {seeds} "
    "each; p-values are Student's over base models, after Holm's correction for the number of designs. Last, the "
    "difference from {recommended} on each base model."
)
END_CAPTION = (
    "After {budget:,} completions: accuracy at matched temperature, greedy and at temperature 1, pass@{passes}, "
    "entropy in nats per token, and matched accuracy by kind of problem. Means, with the standard error of the paired "
    "difference from {recommended} over base models."
)
RATES_CAPTION = (
    "Learning rate that each design is compared at on each base model: the best by mean matched accuracy over the "
    "budget, on {seeds} that are not compared. Each lies inside the grid of rates that were tried."
)
END = {"matched": "Matched", "greedy": "Greedy", "sampled": "Sampled", "passed": "pass@{passes}", "entropy": "Entropy"}
KIND_NAMES = {"solved": "Solved", "right_mode": "Right mode", "wrong_mode": "Wrong mode", "hopeless": "Hopeless"}


def numbered(count: int, noun: str) -> str:
    """``3 seeds``, or ``1 seed``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def speed_table(speed: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Completions to the best group design's accuracy, as text cells, designs in the order of the study."""
    found = speed.assign(base=speed["base"].astype(str)).set_index(["design", "base", "fraction"]).sort_index()
    rows = []
    for design, name in names.items():
        pooled = found.loc[(design, POOLED)]
        bases = found.loc[design].drop(POOLED).xs(1.0, level="fraction")["ratio"]
        rows.append(
            {"Design": name, "Completions": _interval(pooled.loc[1.0])}
            | {f"at {fraction:.0%}": _interval(row) for fraction, row in pooled.drop(1.0).iterrows()}
            | {"Each base model": " / ".join(map(_share, bases))}
        )
    return pd.DataFrame(rows)


def area_table(differences: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Mean accuracies and their paired differences, as text cells.

    differences: From `llm_experiments.study.contrasts.differences`, of several references one after the other; the
        first one's are shown for each base model too.
    names: Design to what it is called.
    """
    found = differences[differences["endpoint"] == "area"].assign(base=lambda each: each["base"].astype(str))
    against = list(dict.fromkeys(found["reference"]))
    found = found.set_index(["reference", "design", "base"]).sort_index()
    rows = []
    for design, name in names.items():
        own = found.loc[(against[0], design)]
        each = own.drop(POOLED)["difference"]
        row = {"Design": name, "Mean accuracy": f"{own.loc[POOLED, 'mean']:.3f}"}
        row |= {f"less {names.get(other, other)}": _gap(found.loc[(other, design, POOLED)]) for other in against}
        rows.append(row | {"Each base model": "" if each.isna().all() else " / ".join(f"{gap:+.3f}" for gap in each)})
    return pd.DataFrame(rows)


def end_table(differences: pd.DataFrame, names: Mapping[str, str], passes: int) -> pd.DataFrame:
    """Endpoints after the budget, as text cells."""
    pooled = differences[differences["base"].astype(str) == POOLED].set_index(["design", "endpoint"])
    columns = {key: name.format(passes=passes) for key, name in END.items()} | KIND_NAMES
    return pd.DataFrame(
        [
            {"Design": name} | {head: _cell(pooled.loc[(design, key)]) for key, head in columns.items()}
            for design, name in names.items()
        ]
    )


def rates_table(rates: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Chosen learning rates, as text cells."""
    chosen = rates[rates["chosen"]].set_index(["design", "base"])["rate"]
    return pd.DataFrame(
        [
            {"Design": name} | {f"Base model {base}": f"{rate:g}" for base, rate in chosen.loc[design].items()}
            for design, name in names.items()
        ]
    )


def _share(ratio: float) -> str:
    return "> 1" if np.isinf(ratio) else f"{ratio:.2f}"


def _interval(row: pd.Series) -> str:
    return f"{_share(row['ratio'])} [{_share(row['low'])}, {_share(row['high'])}]"


def _gap(row: pd.Series) -> str:
    if np.isnan(row["difference"]):
        return ""
    p = "< .001" if row["p_holm"] < 0.001 else f"= {row['p_holm']:.3f}".replace("0.", ".", 1)
    return f"{row['difference']:+.3f} ± {row['se']:.3f} (p {p})"


def _cell(row: pd.Series) -> str:
    return f"{row['mean']:.3f}" if np.isnan(row["se"]) else f"{row['mean']:.3f} ± {row['se']:.3f}"
