"""The state of `AdvantageEstimator`: saved, loaded or passed along, it goes on bit for bit."""

import io

import numpy as np
import pytest
import torch

from kaestat import AdvantageEstimator
from kaestat.baselines import GroupMean, Kae
from tests.helpers.estimators import PARAMETERS, PROMPTS, REWARDS, UNWEIGHTED, make, with_past

SAVABLE = [name for name in UNWEIGHTED if name not in PARAMETERS]
every_method = pytest.mark.parametrize("name", UNWEIGHTED)


def reload_through_torch(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@every_method
def test_a_state_dict_goes_on_bit_for_bit_also_through_torchs_files_of_weights_only(name):
    estimator, resumed = with_past(name), make(name)
    resumed.load_state_dict(reload_through_torch(estimator.state_dict()))

    for step in (3, 4, 9):
        np.testing.assert_array_equal(resumed.step(PROMPTS, REWARDS, step), estimator.step(PROMPTS, REWARDS, step))
    np.testing.assert_equal(resumed.state_dict(), estimator.state_dict())


@pytest.mark.parametrize("name", SAVABLE)
@pytest.mark.parametrize("scale", [None, "none"])
def test_every_method_saves_and_goes_on_with_all_that_came_along(tmp_path, name, scale):
    """With weights, which a scale may refuse, or streams; and with divergences."""
    estimator = make(name, scale=scale)
    weighted = estimator.baseline.takes_weights and scale == "none"
    extras = {"weights": [1.0, 2, 0.5, 1, 1, 3]} if weighted else {"stream_ids": [0, 0, 1, 0, 0, 0]}
    extras |= {"divergence": [0.01] * 6} if estimator.baseline.takes_divergence else {}
    for step in range(3):
        estimator.step(PROMPTS, REWARDS, step, **extras)
    estimator.save(tmp_path / "state")
    resumed = AdvantageEstimator.load(tmp_path / "state")

    assert (resumed.method, resumed.scale, resumed.baseline) == (estimator.method, estimator.scale, estimator.baseline)
    for step in (3, 8):
        np.testing.assert_array_equal(
            resumed.step(PROMPTS, REWARDS, step, **extras), estimator.step(PROMPTS, REWARDS, step, **extras)
        )


@pytest.mark.parametrize("baseline", [Kae(bandwidth=3), Kae(kernel="exponential", cold_start=0.5), GroupMean()])
def test_an_estimator_made_from_a_baseline_object_saves_and_loads(tmp_path, baseline):
    estimator = AdvantageEstimator(baseline, scale="trl_batch")
    estimator.step(PROMPTS, REWARDS, 0)
    estimator.save(tmp_path / "state")
    resumed = AdvantageEstimator.load(tmp_path / "state")

    assert resumed.baseline == baseline and resumed.scale == "trl_batch"
    np.testing.assert_array_equal(resumed.step(PROMPTS, REWARDS, 1), estimator.step(PROMPTS, REWARDS, 1))


@pytest.mark.parametrize(
    "estimator",
    [
        make("oracle"),
        make("remax"),
        make("outside_value"),
        AdvantageEstimator("kae", bandwidth=10, kernel=lambda u: 2 * np.exp(-2 * u)),
        AdvantageEstimator(type("kae", (GroupMean,), {})()),  # named like a method
    ],
    ids=["oracle", "remax", "outside_value", "own kernel", "own baseline"],
)
def test_what_cannot_be_stored_is_refused_before_anything_is_written(tmp_path, estimator):
    estimator.step(PROMPTS, REWARDS, 0)
    with pytest.raises(TypeError, match="build the estimator from code"):
        estimator.save(tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


@every_method
def test_a_snapshot_and_a_state_dict_are_those_of_when_they_were_taken(name):
    estimator, twin = with_past(name), with_past(name)
    state, snapshot = estimator.state_dict(), estimator.state_snapshot()
    ids = ["new", *PROMPTS]
    estimator.step(ids, np.ones(len(ids)), estimator.last_step + 1)
    assert snapshot() == state == snapshot() == twin.state_dict()
