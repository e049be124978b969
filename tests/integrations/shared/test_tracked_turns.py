"""`TrackedTurns`: the library's advantages per turn, with ids, copies, steps and states watched."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.credit.turn_estimator import TurnEstimator
from kaestat.integrations.shared.prompt_ids import hash_prompt
from kaestat.integrations.shared.session import TrainerSession

PROMPTS = ["2+2=", "2+2=", "2+3=", "2+3="]
REWARDS = [[0.0, 1.0], [0.5], [0.0, 0.0, 1.0], [0.0, 0.0]]


def watched(method="kae", **params):
    return TrainerSession(TurnEstimator(method, **({"bandwidth": 3.0} if method == "kae" else {}) | params))


@pytest.mark.parametrize("method", ["kae", "rloo"])
def test_advantages_are_the_librarys(method):
    watching, plain = watched(method), watched(method).estimator
    for step in range(3):
        found = watching.advantages(REWARDS, step, prompts=PROMPTS, mask=[True, True, True, step > 0])
        expected = plain.step([hash_prompt(p) for p in PROMPTS], REWARDS, step, mask=[True, True, True, step > 0])
        assert [each.tolist() for each in found] == [each.tolist() for each in expected]


def test_two_groups_of_a_prompt_are_compared_within_themselves_at_every_turn():
    found = watched("rloo").advantages([[0.0, 1.0]] * 2 + [[0.0, 0.0]] * 2, 0, prompts=["p"] * 4, groups="aabb")
    assert np.concatenate(found).tolist() == [0.0] * 8
    found = watched("rloo").advantages([[0.0, 1.0]] * 2 + [[0.0, 0.0]] * 2, 0, prompts=["p"] * 4)
    assert np.concatenate(found).any()


def test_metrics_are_those_of_whole_completions_and_of_each_further_turn():
    watching = watched()
    for step in range(2):
        watching.advantages(REWARDS, step, prompts=PROMPTS)
    assert watching.metrics["baseline/known_prompts"] == 1.0
    assert watching.metrics["baseline/past_completions"] == 2.0
    assert watching.metrics["baseline/turn_1/past_completions"] == 1.5  # one of "2+2=", two of "2+3="
    assert watching.metrics["baseline/turn_2/past_completions"] == 1.0
    watching.advantages([[1.0]], 2, prompts=["2+2="])
    assert not any(name.startswith("baseline/turn") for name in watching.metrics), "figures of a step that is over"


def test_it_goes_on_from_a_state_and_from_a_file(tmp_path):
    whole, by_state, by_file = watched(), watched(), watched()
    whole.advantages(REWARDS, 0, prompts=PROMPTS)
    whole.save(tmp_path / "state")
    by_state.load_state_dict(whole.state_dict())
    by_file.load(tmp_path / "state")
    expected = whole.advantages(REWARDS, 1, prompts=PROMPTS)
    for other in (by_state, by_file):
        found = other.advantages(REWARDS, 1, prompts=PROMPTS)
        assert [each.tolist() for each in found] == [each.tolist() for each in expected]
    TrainerSession(AdvantageEstimator("kae")).save(tmp_path / "of whole completions")
    with pytest.raises(ValueError, match="holds no state of TurnEstimator"):
        watched().load(tmp_path / "of whole completions")
