"""Tables 3 and 4 as counts: which k of n gives each printed accuracy.

AIME24 and AIME25 have 30 problems and AMC 83, with 32 samples each; MATH-500, Minerva (272) and OlympiadBench (675) one
sample per problem. An accuracy with four digits that is not a multiple of 1/n would refute this.
"""

import numpy as np
import pandas as pd

from paper_figures.audit.recomputed import Printed
from paper_figures.shared import paper


def accuracy_counts() -> pd.DataFrame:
    """The count behind each accuracy.

    Returns: ``table, method, benchmark, printed, n, k, accuracy, verdict``: ``accuracy = k / n`` with the k nearest to
        the printed one, and the verdict "k/n" if it rounds to the printed digits, else "no multiple of 1/n".
    """
    frame = paper.accuracies().merge(paper.benchmarks(), on="benchmark")
    n = frame["problems"] * frame["samples_per_problem"]
    frame = frame.drop(columns="accuracy").assign(n=n, k=np.rint(frame["accuracy"] * n).astype(int))
    frame["accuracy"] = frame["k"] / frame["n"]
    frame["verdict"] = [verdict(Printed(row.printed), row.accuracy) for row in frame.itertuples()]
    order = ["table", "method", "benchmark", "printed", "n", "k", "accuracy", "verdict"]
    return frame.sort_values(["table"], kind="stable")[order].reset_index(drop=True)


def verdict(printed: Printed, accuracy: float) -> str:
    """Whether an exact accuracy rounds to the printed one (ties either way)."""
    fits = abs(accuracy - printed.value) <= printed.half_unit * (1 + 1e-9)
    return "k/n" if fits else "no multiple of 1/n"
