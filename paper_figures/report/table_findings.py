"""What Tables 1 and 2, the sensitivity figure and the audit say about the paper's claims."""

from __future__ import annotations

import pandas as pd

from paper_figures.audit import counts, recomputed, sampling_error
from paper_figures.shared import paper
from paper_figures.shared.comparison import NORMAL_975
from paper_figures.shared.finding import FAILS, HOLDS, Finding, below, counted
from paper_figures.shared.tidy import span
from paper_figures.studies import sensitivity, table1, table2
from simulations.studies.sensitivity import BANDWIDTHS

SMALL_SHARE = 10.0  # per cent of an MSE that may be the oracle pool's noise and pass for little


def of_table1(summary: pd.DataFrame) -> list[Finding]:
    """Entries, reductions, and the share of the oracle pool's noise."""
    entries, reductions = table1.entries(summary), table1.reductions(summary)
    roles = dict(list(entries.groupby("role")))
    found = [
        counted(
            f"KAE's value MSE, predicted, is within {table1.ENTRY_LIMIT:g} % of the paper's",
            roles["predicted"]["verdict"],
            _farthest(roles["predicted"], "off_pct", "%"),
            "paper",
        ),
        counted(
            f"The populations give back the GRPO and REINFORCE++ rows that they are solved from, within "
            f"{table1.ENTRY_LIMIT:g} %",
            roles["input"]["verdict"],
            _farthest(roles["input"], "off_pct", "%"),
        ),
        *_reductions(reductions, "value", table1.REDUCTION_LIMIT),
    ]
    ours = entries[entries["method"] == "kae"]
    share = 100 * (1 - ours["mse_debiased"] / ours["mse"])
    error = 100 * ours["mcse_debiased"] / ours["mse"]
    found.append(
        Finding(
            f"At most {SMALL_SHARE:g} % of KAE's MSE in Table 1 is noise of the oracle pool",
            below(share, error, SMALL_SHARE),
            f"{span(share, '.0f')} % of it is, by the debiased MSE",
        )
    )
    return found


def of_table2(summary: pd.DataFrame) -> list[Finding]:
    """Reductions; levels depend on the model's score norms."""
    return _reductions(table2.reductions(summary), "gradient", table2.REDUCTION_LIMIT)


def of_sensitivity(summary: pd.DataFrame) -> list[Finding]:
    """KAE below GRPO's and REINFORCE++'s levels at every kernel and bandwidth."""
    points = sensitivity.table(summary)
    curves = points[points["kernel"].notna()]
    found = []
    for name in ("grpo", "reinforce++"):
        level = points[points["method"] == name].set_index("step").loc[curves["step"]].reset_index()
        difference = curves["mse"].to_numpy() - level["mse"].to_numpy()
        error = (curves["mcse"].to_numpy() ** 2 + level["mcse"].to_numpy() ** 2) ** 0.5  # unpaired, so too large
        ratio = curves["mse"].to_numpy() / level["mse"].to_numpy()
        found.append(
            Finding(
                f"At every bandwidth from {min(BANDWIDTHS)} to {max(BANDWIDTHS)} steps and for both kernels KAE's "
                f"value MSE is smaller than {paper.LABELS[name]}'s",
                below(difference, error),
                f"{span(ratio)} times it",
                "paper",
            )
        )
    return found


def of_audit() -> list[Finding]:
    """What the paper's numbers say about each other."""
    percentages, claims, averages = recomputed.reductions(), recomputed.text_claims(), recomputed.averages()
    accuracies, differences = counts.accuracy_counts(), sampling_error.difference_errors()
    differing = claims.loc[claims["verdict"] == "differs", "claim"]
    clear = (differences["z_binomial"].abs() > NORMAL_975).sum()
    return [
        Finding(
            "The percentage rows of Tables 1 and 2 follow from their entries",
            _none(percentages, "differs"),
            _tally(percentages),
            "paper",
        ),
        Finding(
            "The numbers in the text follow from the tables",
            _none(claims, "differs"),
            _tally(claims) + (f"; differing: {'; '.join(differing)}" if len(differing) else ""),
            "paper",
        ),
        Finding(
            "The average columns of Tables 3 and 4 are the means of their columns",
            _none(averages, "differs"),
            _tally(averages),
            "paper",
        ),
        Finding(
            "Every accuracy of Tables 3 and 4 is a count over the benchmark's size",
            HOLDS if (accuracies["verdict"] == "k/n").all() else FAILS,
            _tally(accuracies),
        ),
        Finding(
            "KAE's differences to the other methods in Tables 3 and 4 exceed their sampling error",
            HOLDS if clear == len(differences) else FAILS,
            f"{clear} of {len(differences)} do, with independent completions; training runs vary on top of that",
        ),
    ]


def _reductions(frame: pd.DataFrame, kind: str, limit: float) -> list[Finding]:
    return [
        counted(
            f"KAE lowers {paper.LABELS[versus]}'s {kind} MSE by what the paper says, within {limit:g} points",
            part["verdict"],
            f"{span(part['reduction_pct'], '.1f')} % here, {span(part['paper'], '.1f')} % there; "
            + _farthest(part, "off", "points"),
            "paper",
        )
        for versus, part in frame.groupby("versus", sort=False)
    ]


def _farthest(frame: pd.DataFrame, column: str, unit: str) -> str:
    row = frame.loc[frame[column].abs().idxmax()]
    return f"farthest off {row[column]:+.1f} {unit}, {paper.LABELS[row['dataset']]} step {row['step']}"


def _none(frame: pd.DataFrame, verdict: str) -> str:
    return FAILS if (frame["verdict"] == verdict).any() else HOLDS


def _tally(frame: pd.DataFrame) -> str:
    """ "exact: 22, within rounding: 2": how often each verdict occurs."""
    return ", ".join(f"{verdict}: {count}" for verdict, count in frame["verdict"].value_counts().items())
