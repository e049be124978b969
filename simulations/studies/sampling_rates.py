"""Learning rates of the ways of sampling, chosen on problems that study ``sampling`` does not have."""

from __future__ import annotations

import pandas as pd

from simulations.harness import Study
from simulations.harness.study import grid
from simulations.studies import sampling

RATES = (0.4, 0.8, 1.6, 3.2, 6.4)


def conclude(summary: pd.DataFrame) -> pd.DataFrame:
    """The rate with the largest last objective, for each way."""
    last = summary[summary["measure"] == f"objective_{sampling.STEPS}"]
    best = last.loc[last.groupby("way")["estimate"].idxmax()]
    return best[["way", "rate", "estimate", "mcse"]].reset_index(drop=True)


STUDY = Study(
    name="sampling_rates",
    aims="Which learning rate each way of sampling is to have in study `sampling`.",
    mechanisms="As in study `sampling`, with other random numbers.",
    estimands="The mean value after training.",
    methods=tuple(sampling.WAYS),
    measures=("objective", "gain", "least", "of_solved"),
    cells=grid(design=("learning",), way=tuple(sampling.WAYS), rate=RATES),
    replicates=6,
    shard=3,
    simulate=sampling.simulate,
    summarise=sampling.summarise,
    conclude=conclude,
    common=("way", "rate"),
)
