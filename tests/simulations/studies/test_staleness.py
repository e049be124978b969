"""The study of staleness at a tiny size: what must hold exactly, and that its rows are named as it declares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simulations.harness import Cell, Streams
from simulations.studies import staleness as study
from simulations.studies.staleness import STUDY

RESULTS = Path(__file__).parents[3] / "results" / "studies" / "staleness"
SEED = 1  # of the results


@pytest.fixture(autouse=True)
def tiny(request, monkeypatch):
    if "slow" not in request.keywords:
        monkeypatch.setattr(study, "N_PROMPTS", 4)
        monkeypatch.setattr(study, "GROUP_SIZE", 3)
        monkeypatch.setattr(study, "SCORED", slice(8, 11))


def simulated(arrival: str, staleness: int, *, speed: str = "fast", replicates: int = 2):
    cell = Cell({"speed": speed, "arrival": arrival, "staleness": staleness})
    return cell, study.simulate(cell, Streams(SEED, STUDY.seed_key(cell), range(replicates)))


def test_where_all_are_equally_late_values_are_those_of_no_lateness():
    (_, fresh), (_, late) = simulated("together", 0), simulated("together", 4)
    ways = ("kae", "kae_eb", "kae, by arrival", "kae_eb, by arrival", "kae, both sides", "spo", "rloo")
    for way in ways:
        np.testing.assert_allclose(late[f"{way}|value_mse"], fresh[f"{way}|value_mse"], rtol=1e-12)
    assert (late["kae|value_mse"] != late["rloo|value_mse"]).all()


def test_without_lateness_importance_weights_and_versions_change_nothing():
    _, fresh = simulated("together", 0)
    np.testing.assert_allclose(fresh["kae, both sides|value_mse"], fresh["kae|value_mse"], rtol=1e-12)
    for way in ("kae_eb, by arrival", "kae_eb, reweighted", "kae_eb, reweighted, by arrival"):
        np.testing.assert_allclose(fresh[f"{way}|value_mse"], fresh["kae_eb|value_mse"], rtol=1e-12)
    np.testing.assert_allclose(fresh["kae_eb|gradient_mse"], fresh["kae_eb|reweighted_mse"], rtol=1e-12)
    np.testing.assert_allclose(fresh["value now|gradient_mse"], fresh["value then|gradient_mse"], rtol=1e-12)
    assert (fresh["value then|value_mse"] == 0).all() and (fresh["lateness"] == 0).all()


def test_the_errors_are_those_of_the_values_assigned():
    """No baseline: the value is 0, so its error is the squared value of the sampling policy."""
    cell, late = simulated("spread", 2, replicates=1)
    streams = Streams(SEED, STUDY.seed_key(cell), [0])
    policy = study.policy_path(streams.generators("policy")[0], study.SCORED.stop + 4, study.N_PROMPTS, 0.3)
    values = policy[study.SCORED][..., ::2].sum(axis=-1)
    assert late["none|value_mse"][0] == pytest.approx((values**2).mean())


def test_waiting_makes_completions_later_and_the_times_are_the_same():
    (_, alone), (_, group) = (simulated(arrival, 1, replicates=1) for arrival in ("singly", "waiting"))
    assert (group["lateness"] > alone["lateness"]).all()


def test_rows_are_named_as_the_study_declares_and_cells_are_paired():
    places = (("together", 0), ("spread", 1), ("singly", 1), ("waiting", 1))
    cells, samples = zip(*(simulated(*place) for place in places), strict=True)
    here = study.summarise(cells[1], samples[1])
    across = study.compare(cells, samples)
    assert {estimate.measure for estimate in (*here, *across)} == set(STUDY.measures)
    assert {estimate.method for estimate in here} == {"", *STUDY.methods}
    found = {(estimate.method, estimate.measure): estimate.estimate for estimate in across}
    mean = [sample["kae_eb|value_mse"].mean() for sample in samples]
    assert found["kae_eb @ spread 1", "value_to_fresh"] == pytest.approx(mean[1] / mean[0])
    assert found["kae_eb @ singly 1", "value_to_waiting"] == pytest.approx(mean[2] / mean[3])
    rloo = samples[3]["rloo|gradient_mse"].mean()
    waited = samples[2]["kae_eb|gradient_mse"].mean() / rloo
    assert found["kae_eb @ singly 1", "gradient_to_rloo_waiting"] == pytest.approx(waited)


@pytest.mark.slow
def test_the_results_are_those_that_the_study_gives():
    """Two settings; the others are computed by the same functions."""
    kept = pd.read_csv(RESULTS / "errors.csv.gz").set_index(["speed", "arrival", "staleness", "method"])
    n = int(kept["n"].iloc[0])
    for arrival, staleness in (("spread", 4), ("singly", 2)):
        cell, samples = simulated(arrival, staleness, speed="medium", replicates=n)
        for estimate in study.summarise(cell, samples):
            if estimate.method and estimate.method not in study.CONTRASTS:
                row = kept.loc[("medium", arrival, staleness, estimate.method)]
                assert row[estimate.measure] == pytest.approx(estimate.estimate, rel=1e-4), estimate
