"""State files written by an earlier version load, and go on bit for bit.

`data/states` was written before `StepRecord` was there: seven steps of each case, then
the state, and in `continued.json` two further steps with what that version gave for them.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.watched_estimator import WatchedEstimator

STATES = Path(__file__).parent / "data" / "states"
CONTINUED = json.loads((STATES / "continued.json").read_text())
FEATURES = {f"prompt {k}": [k / 4, (-1.0) ** k] for k in range(6)}


def loaded(name: str) -> AdvantageEstimator:
    path = STATES / f"{name}.state"
    if name != "critic":
        return AdvantageEstimator.load(path)
    watched = WatchedEstimator(AdvantageEstimator("critic", features=FEATURES))  # features are in no file
    watched.load(path)
    return watched.estimator


@pytest.mark.parametrize("name", CONTINUED)
def test_a_state_of_an_earlier_version_goes_on_bit_for_bit(name):
    estimator = loaded(name)
    for row in map(dict, CONTINUED[name]):
        ids = [tuple(key) if isinstance(key, list) else key for key in row.pop("prompt_ids")]
        expected = row.pop("values"), row.pop("advantages")
        advantages = estimator.step(ids, **row)
        if name == "kalman":  # its noise is the variance of the past rewards since then, here of shares of success
            np.testing.assert_allclose(estimator.values, expected[0], atol=0.05)
            continue
        np.testing.assert_array_equal(estimator.values, expected[0])
        np.testing.assert_array_equal(advantages, expected[1])


def test_the_old_states_differ_from_a_fresh_start():
    for name, rows in CONTINUED.items():
        estimator = loaded(name)
        assert estimator.last_step == 12
        kept = estimator.history is not None and len(estimator.history) >= 6
        assert kept or estimator._state.carry is not None, name
        assert [row["step"] for row in rows] == [14, 17]
