"""Number by number, as the report shows it: ours, its Monte Carlo standard error, the paper's, and the verdict."""

import pandas as pd

from paper_figures.shared import paper


def entries(frame: pd.DataFrame) -> pd.DataFrame:
    """Table 1's entries, from `paper_figures.studies.table1.entries`; MSEs times 1000."""
    return pd.DataFrame(
        {
            "Cell": _cells(frame),
            "Method": frame["method"].map(paper.LABELS),
            "Role": frame["role"],
            "Ours": _milli(frame["mse"]),
            "MC error": _milli(frame["mcse"], 3),
            "Paper": (1000 * frame["paper"]).map("{:g}".format),
            "Off (%)": frame["off_pct"].map("{:+.1f}".format),
            "Off (sd of one run)": frame["z"].map("{:+.1f}".format),
            "Ours, debiased": _milli(frame["mse_debiased"]),
            "Sd of one run": _milli(frame["one_run_sd"]),
        }
    )


def levels(frame: pd.DataFrame, stated: pd.DataFrame) -> pd.DataFrame:
    """Table 2's levels, from `paper_figures.studies.table2.table`, beside the paper's as printed; ours times 1000."""
    both = frame.merge(stated, on=["dataset", "step", "method"], suffixes=("", "_paper"), validate="one_to_one")
    return pd.DataFrame(
        {
            "Cell": _cells(both),
            "Method": both["method"].map(paper.LABELS),
            "Ours (x 0.001, bandit)": _milli(both["gradient_mse"]),
            "MC error": _milli(both["mcse"], 3),
            "Paper (as printed)": both["printed"],
            "Verdict": "not comparable",
        }
    )


def reductions(frame: pd.DataFrame) -> pd.DataFrame:
    """Percentage rows, from `paper_figures.shared.comparison.reductions`."""
    return pd.DataFrame(
        {
            "Cell": _cells(frame),
            "Versus": frame["versus"].map(paper.LABELS),
            "Role": "predicted",
            "Ours (%)": frame["reduction_pct"].map("{:.2f}".format),
            "MC error": frame["mcse"].map("{:.3f}".format),
            "Paper (%)": frame["paper"].map("{:g}".format),
            "Off (points)": frame["off"].map("{:+.1f}".format),
            "Off (sd of one run)": frame["z"].map("{:+.1f}".format),
            "95 % interval": [f"{row.low:.2f} to {row.high:.2f}" for row in frame.itertuples()],
            "Sd of one run": frame["one_run_sd"].map("{:.2f}".format),
        }
    )


def _cells(frame: pd.DataFrame) -> pd.Series:
    return frame["dataset"].map(paper.LABELS) + frame["step"].map(" {}".format)


def _milli(column: pd.Series, digits: int = 2) -> pd.Series:
    return (1000 * column).map(f"{{:.{digits}f}}".format)
