"""State files written by an earlier version load, and go on with the same numbers.

`data/states` was written before `StepRecord` was there: seven steps of each case, then the state, and in
`continued.json` two further steps with what that version gave for them, on a processor that may round sums otherwise.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from kaestat import AdvantageEstimator, make_baseline
from kaestat.core.storage import load_state, save_state
from kaestat.integrations.shared.session import TrainerSession

STATES = Path(__file__).parent / "data" / "states"
CONTINUED = json.loads((STATES / "continued.json").read_text())
FEATURES = {f"prompt {k}": [k / 4, (-1.0) ** k] for k in range(6)}


def loaded(name: str) -> AdvantageEstimator:
    path = STATES / f"{name}.state"
    if name != "critic":
        return AdvantageEstimator.load(path)
    watched = TrainerSession(AdvantageEstimator("critic", features=FEATURES))  # features are in no file
    watched.load(path)
    return watched.estimator


@pytest.mark.parametrize("name", CONTINUED)
def test_a_state_of_an_earlier_version_goes_on_with_the_same_numbers(name):
    estimator = loaded(name)
    for row in map(dict, CONTINUED[name]):
        ids = [tuple(key) if isinstance(key, list) else key for key in row.pop("prompt_ids")]
        expected = row.pop("values"), row.pop("advantages")
        advantages = estimator.step(ids, **row)
        if name == "kalman":  # its noise is the variance of the past rewards since then, here of shares of success
            np.testing.assert_allclose(estimator.values, expected[0], atol=0.05)
            continue
        np.testing.assert_allclose(estimator.values, expected[0], rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(advantages, expected[1], rtol=1e-13, atol=1e-14)


def test_the_old_states_differ_from_a_fresh_start():
    for name, rows in CONTINUED.items():
        estimator = loaded(name)
        assert estimator.last_step == 12
        kept = estimator.history is not None and len(estimator.history) >= 6
        assert kept or estimator.held.state.carry is not None, name
        assert [row["step"] for row in rows] == [14, 17]


FIXED = {"kae": 10.0, "kae_eb": 20.0}  # defaults before they learned their bandwidth


def trained(estimator: AdvantageEstimator, first: int = 0) -> AdvantageEstimator:
    rewards = np.random.default_rng(first).integers(0, 2, (6, 12)).astype(float)
    for step, row in enumerate(rewards, first):
        estimator.step(list("aabbccddeeff"), row, step)
    return estimator


@pytest.mark.parametrize("kernel", ["triangular", "exponential"])
@pytest.mark.parametrize("name", FIXED)
def test_a_file_that_names_no_bandwidth_has_the_default_of_its_time(tmp_path, name, kernel):
    written = trained(AdvantageEstimator(name, bandwidth=FIXED[name], kernel=kernel))
    written.save(tmp_path / "state")
    content = load_state(tmp_path / "state")
    del content["estimator"]["params"]["bandwidth"]
    save_state(tmp_path / "state", content)
    loaded = AdvantageEstimator.load(tmp_path / "state")
    assert loaded.baseline == make_baseline(name, bandwidth=FIXED[name], kernel=kernel)
    np.testing.assert_array_equal(trained(loaded, 6).values, trained(written, 6).values)


@pytest.mark.parametrize("name", FIXED)
def test_a_file_of_today_tells_the_bandwidth_and_stays_as_it_was_built(tmp_path, name):
    written = trained(AdvantageEstimator(name))
    written.save(tmp_path / "state")
    assert load_state(tmp_path / "state")["estimator"]["params"] == {"bandwidth": "auto"}
    loaded = AdvantageEstimator.load(tmp_path / "state")
    assert loaded.baseline == make_baseline(name) and repr(loaded) == repr(written)
    np.testing.assert_array_equal(trained(loaded, 6).values, trained(written, 6).values)


@pytest.mark.parametrize("kernel", ["triangular", "exponential"])
@pytest.mark.parametrize("name", FIXED)
def test_a_state_of_a_fixed_bandwidth_is_refused_by_one_that_learns_it_and_says_what_to_do(name, kernel):
    fixed = trained(AdvantageEstimator(name, bandwidth=FIXED[name], kernel=kernel))
    learning = trained(AdvantageEstimator(name, kernel=kernel))
    before = learning.state_dict()
    with pytest.raises(ValueError, match="with the parameters that were saved"):
        learning.load_state_dict(fixed.state_dict())
    assert learning.state_dict() == before
    with pytest.raises(ValueError, match="with the parameters that were saved"):
        fixed.load_state_dict(before)


def test_a_weighted_history_without_sums_of_squared_weights_fills_them_in():
    history = AdvantageEstimator.load(STATES / "kae_eb_weighted.state").history
    visits = history.visits(list(history.columns.row), step=13)
    filled = np.where(
        visits.weight > 0, visits.weight_sq * visits.weighted_total / np.where(visits.weight, visits.weight, 1), 0
    )
    np.testing.assert_allclose(visits.weight_sq_total, filled, rtol=1e-12)
    assert (visits.weight_sq_total_sq > 0).any()
