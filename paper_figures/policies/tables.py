"""Tables of a study of policies, as text."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from llm_experiments.study.contrasts import POOLED

SPEED_CAPTION = (
    "Completions to the final accuracy of {reference} at matched temperature, as a share of the budget of {budget:,}, "
    "with 95 % intervals over seeds: geometric mean over {bases} with {seeds} each, and each base "
    "model. 'Arrive' is the share of runs whose own curve gets there. 'Mean accuracy' is that over the whole budget, "
    "then its differences, paired run by run, with p-values after Holm's correction for the number of designs."
)
END_CAPTION = (
    "After {budget:,} completions: accuracy at matched temperature, greedy and at temperature 1, pass@{passes}, "
    "entropy in nats per token, and matched accuracy by kind of problem. Means, with the standard error of the paired "
    "difference from {reference}."
)
RATES_CAPTION = (
    "Mean matched accuracy over the budget at each learning rate, on {seeds} of the first base model; bold "
    "is the rate that the design is compared at."
)
CHECK_CAPTION = (
    "Could a difference show? Greedy accuracy on test problems of the base models, and of the first one after the "
    "updates of a run, with standard errors over the seeds that chose the rates."
)
COST_CAPTION = (
    "What a completion costs: tokens up to its end, and {clock}, the update and the baseline "
    "included, tests left out (a stack of one run, {turns} turns of each design). Time to the accuracy is the time per "
    "completion multiplied by the completions, both as shares of those of {reference}. ± one standard error."
)
END = {"matched": "Matched", "greedy": "Greedy", "sampled": "Sampled", "passed": "pass@{passes}", "entropy": "Entropy"}
KIND_NAMES = {"solved": "Solved", "right_mode": "Right mode", "wrong_mode": "Wrong mode", "hopeless": "Hopeless"}


def numbered(count: int, noun: str) -> str:
    """``3 seeds``, or ``1 seed``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def speed_table(speed: pd.DataFrame, differences: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Designs in the order of the study, as text cells."""
    by_base = speed.assign(base=speed["base"].astype(str)).set_index(["design", "base"])
    gaps = differences[(differences["endpoint"] == "area") & (differences["base"].astype(str) == POOLED)]
    against = list(dict.fromkeys(gaps["reference"]))
    gaps = gaps.set_index(["reference", "design"])
    rows = []
    for design, name in names.items():
        own = by_base.loc[design]
        pooled = own.loc[POOLED]
        bases = " / ".join(_share(ratio) for ratio in own.drop(POOLED)["ratio"])
        rows.append(
            {
                "Design": name,
                "Completions": f"{_share(pooled['ratio'])} [{_share(pooled['low'])}, {_share(pooled['high'])}]",
                "Each base model": bases,
                "Arrive": f"{pooled['reached']:.0%}",
                "Mean accuracy": f"{gaps.loc[(against[0], design), 'mean']:.3f}",
            }
            | {f"less {names[other]}": _gap(gaps.loc[(other, design)]) for other in against}
        )
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
    """Learning rates, as text cells."""
    rows = []
    for design, name in names.items():
        own = rates[rates["design"] == design]
        cells = {
            f"{row.rate:g}": f"**{row.area:.3f}**" if row.chosen else f"{row.area:.3f}" for row in own.itertuples()
        }
        rows.append({"Design": name} | cells)
    return pd.DataFrame(rows)


def check_table(check: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Whether a difference could show, as text cells."""
    return pd.DataFrame(
        {
            "Situation": check["quantity"].str.capitalize(),
            "Design": check["design"].map(lambda name: names.get(name, name)),
            "Greedy accuracy": [
                f"{row.accuracy:.3f} ± {row.se:.3f}" if row.se > 0 else f"{row.accuracy:.3f}"
                for row in check.itertuples()
            ],
        }
    )


def cost_table(cost: pd.DataFrame, speed: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Tokens and processor time, as text cells."""
    completions = speed[speed["base"].astype(str) == POOLED].set_index("design")["ratio"]
    return pd.DataFrame(
        [
            {
                "Design": names[row.design],
                "Tokens": f"{row.tokens:.2f} ± {row.tokens_se:.2f}",
                "Milliseconds": f"{row.milliseconds:.2f} ± {row.milliseconds_se:.2f}",
                "Time per completion": f"{row.ratio:.2f} ± {row.ratio_se:.2f}",
                "Time to the accuracy": _share(row.ratio * completions[row.design]),
            }
            for row in cost.itertuples()
            if row.design in completions.index
        ]
    )


def _share(ratio: float) -> str:
    return "> 1" if np.isinf(ratio) else f"{ratio:.2f}"


def _gap(row: pd.Series) -> str:
    if np.isnan(row["difference"]):
        return ""
    p = "< .001" if row["p_holm"] < 0.001 else f"= {row['p_holm']:.3f}".replace("0.", ".")
    return f"{row['difference']:+.3f} ± {row['se']:.3f} (p {p})"


def _cell(row: pd.Series) -> str:
    return f"{row['mean']:.3f}" if np.isnan(row["se"]) else f"{row['mean']:.3f} ± {row['se']:.3f}"
