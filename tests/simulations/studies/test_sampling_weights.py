"""The study of weights in the allocation, at a small size."""

from __future__ import annotations

import numpy as np

from simulations.harness import Cell, Streams
from simulations.studies import sampling_weights as study
from tests.helpers.statistical import check_mean, generator

SEED = int(generator().integers(2**31))


def test_weights_pay_and_nothing_pays_more_than_the_exact_noise():
    cell = Cell({"method": "kae_eb", "setting": "slow"})
    samples = study.simulate(cell, Streams(SEED, study.STUDY.seed_key(cell), range(6)))
    found = {estimate.measure: estimate for estimate in study.summarise(cell, samples)}
    gain = found["weighted_to_plain"]
    check_mean(estimate=gain.estimate, se=gain.mcse, target=1.02, detect=0.15, side="at least", power=0.9)
    assert (samples["exact"] < np.minimum(samples["weighted"], samples["uniform"])).all()
