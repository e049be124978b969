"""Summaries of studies at a small scale, without files."""

from dataclasses import asdict

import pandas as pd

from simulations.harness import Streams, Study


def summary_of(study: Study, replicates: int) -> pd.DataFrame:
    """From the first replicates of every cell."""
    rows = []
    for cell in study.cells:
        samples = study.simulate(cell, Streams(0, study.seed_key(cell), range(replicates)))
        rows += [dict(cell.factors) | asdict(estimate) for estimate in study.summarise(cell, samples)]
    return pd.DataFrame(rows)
