"""Every claim of the paper, with its place and what became of it.

A claim is decided by findings of the report (`Finding.settles`), by the committed training runs of a small model, by an
audit of the paper's own numbers, or by a test that is named. What small runs do not refute needs the paper's models.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from paper_figures.audit import recomputed
from paper_figures.shared import paper
from paper_figures.shared.finding import FAILS, HOLDS, LEVEL, OPEN, Finding, together

REVERSED, GPUS = "reversed at small size", "needs GPUs"
VERDICTS = (HOLDS, FAILS, REVERSED, OPEN, GPUS)
COLUMNS = ["place", "claim", "verdict", "evidence"]
RESULTS = Path(__file__).parents[2] / "results" / "training"
KAE, SCHEDULED = "kae:bandwidth=10", 10
# Experiment, then (method, reuse) of KAE, then the rivals as the tables call them.
SMALL = {
    "one_shot_oracle": ("tiny_one_shot", ("kae_stream:bandwidth=10", 1), ("pooled",)),
    "one_shot_grpo": ("tiny_one_shot", ("kae_stream:bandwidth=10", 1), ("grpo",)),
    "multi_stream_g8": ("tiny_multi_stream_g8", (KAE, SCHEDULED), ("grpo", "dr_grpo", "gpg")),
    "multi_stream_g4": ("tiny_multi_stream_g4", (KAE, SCHEDULED), ("grpo", "dr_grpo", "gpg")),
    "single_stream": ("tiny_single_stream", (KAE, SCHEDULED), ("none",)),
    "ablation_reinforce": ("tiny_single_stream", (KAE, SCHEDULED), ("none-J10",)),
    "ablation_grpo": ("tiny_multi_stream_g8", (KAE, SCHEDULED), ("grpo-J10",)),
}
AUDITED = {"holds": HOLDS, "differs": FAILS, "not checkable": GPUS}


def claims(findings: Sequence[Finding], results: Path = RESULTS) -> pd.DataFrame:
    """A row for each claim: ``place, claim, verdict, evidence``; the verdicts are `VERDICTS`.

    findings: Of the report. A claim whose part of the report failed is undecided.
    results: Folder of the small model's training runs.
    Raises ValueError if a finding settles a claim that is not in the list.
    """
    stated = paper.claim_list()
    settled = pd.DataFrame(
        [(key, finding) for finding in findings for key in finding.settles], columns=["key", "finding"]
    )
    unknown = sorted(set(settled["key"]) - set(stated["key"]))
    if unknown:
        raise ValueError(f"no claim is called {', '.join(unknown)}: add it to claim_list.csv.")
    rows = []
    for row in stated.itertuples():
        kind, _, name = row.decided_by.partition(":")
        if kind == "report":
            verdict, evidence = _settled(list(settled.loc[settled["key"] == row.key, "finding"]))
        elif name == "peaks":
            verdict, evidence = _peaks(results)
        elif kind == "small":
            verdict, evidence = _small(results, *SMALL[name])
        else:
            verdict, evidence = row.verdict, row.evidence
        rows.append((row.place, row.claim, verdict, evidence))
    rows += [
        (row.place, f"By the paper's own tables: {row.claim}", AUDITED[row.verdict], f"{_recomputed(row)}{row.note}")
        for row in recomputed.text_claims().itertuples()
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _settled(findings: list[Finding]) -> tuple[str, str]:
    if not findings:
        return OPEN, "not in this report"
    return together(*(finding.verdict for finding in findings)), "; ".join(finding.evidence for finding in findings)


def _small(results: Path, experiment: str, ours: tuple[str, int], rivals: tuple[str, ...]) -> tuple[str, str]:
    """Reversed if the small model's accuracy is clearly lower with KAE than with one of the rivals."""
    frame = pd.read_csv(results / experiment / "differences.csv", keep_default_na=False)
    plain = frame[(frame["weights"] == "none") & (frame["scale"] == "own") & (frame["outcome"] == "accuracy")]
    ours = plain[(plain["method"] == ours[0]) & (plain["reuse"] == ours[1])].set_index("reference")
    rows = ours.loc[list(rivals)]
    text = ", ".join(
        f"{100 * row.difference:+.1f} points against {name} ({100 * row.ci_low:.1f} to {100 * row.ci_high:.1f})"
        for name, row in rows.iterrows()
    )
    verdict = REVERSED if (rows["ci_high"] < 0).any() else GPUS
    return verdict, f"small model, {rows['n_seeds'].iloc[0]} seeds: {text}; {100 * (1 - LEVEL):g} % intervals"


def _peaks(results: Path) -> tuple[str, str]:
    """Reversed if KAE loses more of its best mean accuracy by the end than REINFORCE."""
    frame = pd.read_csv(results / "tiny_single_stream" / "tests.csv", keep_default_na=False)
    plain = frame[(frame["weights"] == "none") & (frame["scale"] == "own")]
    lost = {}
    for name, reuse in (("none", 1), (KAE, SCHEDULED)):
        runs = plain[(plain["method"] == name) & (plain["reuse"] == reuse)].pivot_table(
            index="step", columns="seed", values="accuracy"
        )
        lost[name] = runs.max() - runs.iloc[-1]
    difference = lost[KAE] - lost["none"]
    error = difference.std(ddof=1) / len(difference) ** 0.5
    verdict = REVERSED if difference.mean() > 2 * error and difference.mean() > 0 else GPUS
    return verdict, (
        f"small model: from its best to its last test REINFORCE loses {100 * lost['none'].mean():.2f} points, "
        f"KAE {100 * lost[KAE].mean():.2f}"
    )


def _recomputed(row) -> str:
    if pd.isna(row.recomputed_low):
        return ""
    low, high = (f"{value:.4g}" for value in (row.recomputed_low, row.recomputed_high))
    return f"from the tables {low if low == high else f'{low} to {high}'}. "
