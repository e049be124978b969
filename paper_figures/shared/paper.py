"""The paper's numbers as data: Tables 1-4, benchmarks and the claims of its text.

Every frame keeps the number as printed (``printed``), since its digits say how it was rounded.
"""

from pathlib import Path

import pandas as pd

DATA = Path(__file__).with_name("data")
STEPS = (10, 90, 170)
DATASETS = ("math", "gsm8k")
LABELS = {
    "kae": "KAE",
    "grpo": "GRPO",
    "reinforce++": "REINFORCE++",
    "dr_grpo": "Dr. GRPO",
    "gpg": "GPG",
    "math": "MATH",
    "gsm8k": "GSM8K",
    "aime24": "AIME24",
    "aime25": "AIME25",
    "amc": "AMC",
    "minerva": "Minerva",
    "olympiad": "Olympiad",
    "average": "Avg",
}


def levels(number: int) -> pd.DataFrame:
    """MSEs of Table 1 (value) or 2 (gradient): ``dataset, step, method, printed, mse``.

    Of Table 1 the mse is in plain units, and printed in units of 0.001. The caption of Table 2 says "MSE (x 10^4)",
    which may mean either power; its number is left as printed.
    """
    frame = _read(f"table{number}")
    return frame.assign(mse=frame["printed"].astype(float) / (1000 if number == 1 else 1))


def reductions(number: int) -> pd.DataFrame:
    """KAE's reductions of the MSE in Table 1 or 2: ``dataset, step, versus, printed, reduction_pct``."""
    frame = _read(f"table{number}_reductions")
    return frame.assign(reduction_pct=frame["printed"].astype(float))


def accuracies() -> pd.DataFrame:
    """Tables 3 and 4: ``table, method, benchmark, printed, mark, accuracy``.

    ``mark`` is "best" where the paper prints bold, "second" where it underlines. ``table`` is 3 (post-trained on
    MATH) or 4 (on DAPO); the benchmark "average" is the paper's last column.
    """
    frame = pd.concat([_read(f"table{number}").assign(table=number) for number in (3, 4)], ignore_index=True)
    return frame.assign(accuracy=frame["printed"].astype(float))


def benchmarks() -> pd.DataFrame:
    """``benchmark, problems, samples_per_problem``, in the tables' order.

    The paper tells neither. The problems are those of the public test sets; 32 samples per problem of the three small
    ones is what `paper_figures.audit.counts` finds consistent with every entry.
    """
    return _read("benchmarks")


def claims() -> pd.DataFrame:
    """Numbers claimed in the text: ``claim, place, quantity, low, high``, as printed; high is empty without an end."""
    return pd.read_csv(DATA / "claims.csv", dtype=str, keep_default_na=False)


def claim_list() -> pd.DataFrame:
    """All other claims: ``key, place, claim, decided_by, verdict, evidence``.

    ``decided_by`` is "report" (by findings), "small:NAME" (by training runs of a small model) or "fixed", and only then
    verdict and evidence are filled.
    """
    return pd.read_csv(DATA / "claim_list.csv", dtype=str, keep_default_na=False)


def _read(name: str) -> pd.DataFrame:
    return pd.read_csv(DATA / f"{name}.csv", dtype={"printed": str, "mark": str}).fillna({"mark": ""})
