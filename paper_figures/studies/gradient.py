"""Theorem 2 and Corollary 2, the gradient's excess MSE over the oracle: study ``gradient_mse``."""

import pandas as pd

from paper_figures.shared.charts import LABELS
from paper_figures.shared.finding import Finding, below, critical, equal
from paper_figures.shared.tidy import by_measure, span, text_grid, with_error
from simulations.studies.gradient_mse import BASE

FACTORS = {
    "h": "Bandwidth h",
    "step": "Step i",
    "batch": "Batch size B",
    "group_size": "Group size G",
    "m": "Number of prompts m",
}
METHODS = ("kae", "kae_eb", "grpo", "reinforce++")
MEASURES = ("gradient_mse", "value_mse", "ratio_to_oracle", "excess_over_oracle", "excess_over_identity")
CAPTION = (
    "Gradient MSE relative to that with the true value as baseline (Monte Carlo standard error), one factor of the "
    "base setting changed at a time; score norms do not depend on the reward (Assumption 6)."
)


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """Every cell and method.

    summary: Of the study ``gradient_mse``.
    Returns: The cell's factors, ``method``, and each of `MEASURES` with its error as ``MEASURE_mcse``, and ``n``; then
        ``identity_excess``, the excess that Theorem 2's identity gives for the simulated values.
    """
    factors = list(BASE)
    frame = by_measure(summary, [*factors, "method"], (*MEASURES, "identity_excess"))
    return frame.drop(columns="identity_excess_mcse")


def under_assumption(summary: pd.DataFrame) -> pd.DataFrame:
    """Rows of `table` with one score norm for all completions, for the methods compared."""
    frame = table(summary)
    return frame[(frame["wrong_norm2"] == 1) & frame["method"].isin(METHODS)]


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each setting, a column for each method: MSE relative to the oracle's."""
    frame = under_assumption(summary)
    settings = [_text(dict(zip(FACTORS, cell, strict=True))) for cell in frame[list(FACTORS)].itertuples(index=False)]
    rows, columns = dict(zip(settings, settings, strict=True)), {name: LABELS[name] for name in METHODS}
    return text_grid(frame.assign(setting=settings), "ratio_to_oracle", "setting", rows, "method", columns)


def findings(summary: pd.DataFrame) -> list[Finding]:
    """Theorem 2's identity, and KAE against the others."""
    frame = under_assumption(summary)
    identity = frame["excess_over_identity"], frame["excess_over_identity_mcse"]
    z = (identity[0] - 1).abs() / identity[1]
    ratio = frame.set_index("method")["ratio_to_oracle"]
    found = [
        Finding(
            "Under Assumption 6 the excess over the oracle is the value error over B G, as Theorem 2's identity says",
            equal(*identity, 1.0),
            f"largest of {len(frame)} deviations {z.max():.1f} standard errors, {critical(len(frame)):.1f} allowed",
            "paper",
            ("theorem2",),
        )
    ]
    cells = frame.set_index(["method", *BASE])
    for other in ("grpo", "reinforce++"):
        ours, theirs = cells.loc["kae"], cells.loc[other]
        difference = ours["excess_over_oracle"] - theirs["excess_over_oracle"]
        # Unpaired, so too large: both share the random numbers.
        error = (ours["excess_over_oracle_mcse"] ** 2 + theirs["excess_over_oracle_mcse"] ** 2) ** 0.5
        found.append(
            Finding(
                f"KAE's gradient has a smaller MSE than {LABELS[other]}'s in every setting",
                below(difference, error),
                f"relative to the oracle {span(ratio['kae'])} against {span(ratio[other])}",
                "paper",
                (f"corollary2_{other}",),
            )
        )
    others = [name for name in FACTORS if name != "step"]
    of_base = (frame["method"] == "kae") & (frame[others] == pd.Series(BASE)[others]).all(axis=1)
    steps = frame[of_base].sort_values("step")
    first, last = steps.iloc[0], steps.iloc[-1]
    found.append(
        Finding(
            "KAE's gradient MSE approaches the oracle's as training goes on",
            below(
                [last["ratio_to_oracle"] - first["ratio_to_oracle"]],
                [(first["ratio_to_oracle_mcse"] ** 2 + last["ratio_to_oracle_mcse"] ** 2) ** 0.5],
            ),
            f"{with_error(first['ratio_to_oracle'], first['ratio_to_oracle_mcse'])} of it at step {first['step']:g}, "
            f"{with_error(last['ratio_to_oracle'], last['ratio_to_oracle_mcse'])} at step {last['step']:g}",
            "paper",
            ("corollary2_oracle",),
        )
    )
    return found


def _text(setting: dict[str, float]) -> str:
    """ "B = 8": what differs from the base, with the symbols of the labels; all of the base's."""
    changed = {name: value for name, value in setting.items() if value != BASE[name]}
    text = ", ".join(f"{FACTORS[name].split()[-1]} = {value:g}" for name, value in (changed or setting).items())
    return text if changed else f"base: {text}"
