"""Tables and figures of a diagnostic run, from its results alone."""

import os

from llm_experiments.diagnose.results import read_results
from paper_figures.llm import figures, tables


def build(folder: str | os.PathLike) -> list[str]:
    """Write ``tables/`` and ``figures/`` below a results folder; lines that say whether KAE < GRPO < REINFORCE++.

    Raises FileNotFoundError, ValueError if the folder holds no results, or such as cannot be read.
    """
    results = read_results(folder)
    tables.write(results, folder)
    figures.write(results, folder)
    return [
        f"step {row.step}, {row.measure}: {row.comparison}: {row.verdict} "
        f"({row.difference:.3g} [{row.ci_low:.3g}, {row.ci_high:.3g}])"
        for row in tables.orders(results).itertuples()
    ]
