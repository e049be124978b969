"""Those who watch a path remember what they would remember of it, and do not change it."""

import numpy as np
import pytest
import torch

from llm_experiments.study.noise.following import follow
from llm_experiments.study.noise.redraws import redraw
from llm_experiments.training.stacked.config import Design


def test_watching_changes_nothing_and_is_remembered(folder, small_study):
    study = small_study
    rates = {"kae_eb_1": 1e-2, "kae_1": 1e-4, "grpo_4": 1e-3}
    places = []
    for place in follow(study, 0, folder, rates):
        every = place.trainings
        assert {training.step for training in every.values()} == {place.generated // study.completions}
        assert all(training.parameters is every["kae_eb_1"].parameters for training in every.values())
        weights = {name: each.detach().clone() for name, each in every["kae_eb_1"].parameters.items()}
        known = {name: [len(run.estimator.history or ()) for run in each.runs] for name, each in every.items()}
        places.append((place.generated, weights, known))
    assert [generated for generated, _, _ in places] == [16, 24]
    assert [known["kae_1"] for _, _, known in places] == [[16, 16], [24, 24]]
    assert [known["grpo_4"] for _, _, known in places] == [[0, 0], [0, 0]]
    alone = [
        {name: each.detach().clone() for name, each in place.trainings["kae_eb_1"].parameters.items()}
        for place in follow(study, 0, folder, {"kae_eb_1": 1e-2})
    ]
    for (_, weights, _), own in zip(places, alone, strict=True):
        for name, each in own.items():
            assert torch.equal(each, weights[name])


def test_a_history_is_what_the_design_would_have_gathered(folder, small_study):
    """Its own prompts: those that a run of the design with the same seed takes."""
    rates = {"kae_eb_1": 1e-2, "kae_1": 1e-4}
    *_, place = follow(small_study, 0, folder, rates)
    *_, own = follow(
        small_study.model_copy(update={"noise": small_study.noise.model_copy(update={"path": "kae_1"})}),
        0,
        folder,
        rates,
    )
    for watched, run in zip(place.trainings["kae_1"].runs, own.trainings["kae_1"].runs, strict=True):
        assert watched.latest.rows.tolist() == run.latest.rows.tolist()


@pytest.mark.parametrize("weights", ["exact", "adam"])
def test_designs_that_weigh_by_gradients_can_watch_and_be_redrawn(weights, folder, small_study, monkeypatch):
    monkeypatch.setattr(
        "llm_experiments.training.stacked.loop.grade", lambda task, problem, text: float(sum(map(ord, text)) % 2)
    )
    weighted = Design(method="kae_eb", weights=weights)
    study = small_study.model_copy(update={"designs": {**small_study.designs, "weighted": weighted}})
    *_, place = follow(study, 0, folder, {"kae_eb_1": 1e-2, "weighted": 1e-2})
    own, plain = place.trainings["weighted"], place.trainings["kae_eb_1"]
    assert [len(run.estimator.history) for run in own.runs] == [24, 24]
    weighted_values, values = (redraw(training, 0, 2, seed=1).values for training in (own, plain))
    assert weighted_values.shape == values.shape
    assert np.abs(weighted_values - values).max() > 1e-3, "the weights made no difference"


def test_a_study_without_noise_is_refused(folder, small_study):
    with pytest.raises(ValueError, match="does not say where"):
        next(follow(small_study.model_copy(update={"noise": None}), 0, folder, {"kae_eb_1": 1e-2}))
