"""The audit of the paper's numbers as files: what is exact, what differs, and how large sampling errors are."""

from functools import cache

import pandas as pd

from paper_figures.audit import counts, recomputed, sampling_error
from paper_figures.shared import paper

CAPTIONS = {
    "audit_percentages": "Percentage rows of the paper's Tables 1 and 2, computed again from the printed entries; low "
    "and high over all entries that round to them.",
    "audit_claims": "Numbers in the paper's text, computed again from its tables.",
    "audit_averages": "Average column of the paper's Tables 3 and 4, computed again.",
    "audit_counts": "Accuracies of the paper's Tables 3 and 4 as k of n.",
    "audit_differences": "KAE's differences in the paper's Tables 3 and 4 with their sampling errors, all completions "
    "independent; the variation between training runs is not in them.",
}

_MAKE = {
    "audit_percentages": recomputed.reductions,
    "audit_claims": recomputed.text_claims,
    "audit_averages": recomputed.averages,
    "audit_counts": counts.accuracy_counts,
    "audit_differences": sampling_error.difference_errors,
}
TABLES = {name: cache(make) for name, make in _MAKE.items()}


def shown(frame: pd.DataFrame) -> pd.DataFrame:
    """A table as readers see it: four significant digits, labels for names, empty where there is no number."""
    return frame.astype(object).map(_text).rename(columns=lambda head: head.replace("_", " "))


def _text(cell: object) -> str:
    if pd.isna(cell):
        return ""
    return f"{cell:.4g}" if isinstance(cell, float) else paper.LABELS.get(str(cell), str(cell))
