"""`WatchedSampler`, which the adapters that draw prompts stand on: states by step."""

from __future__ import annotations

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.watched_sampler import WatchedSampler, sampler_of

IDS = [f"q{k}" for k in range(10)]


def watched(states_kept=2):
    sampler = sampler_of("neyman", IDS, budget=8, group_size=2, estimator=AdvantageEstimator("rloo"), seed=1)
    return WatchedSampler(sampler, states_kept=states_kept)


def go(run, steps):
    draws = []
    for step in steps:
        rows = run.sampler.draw(step).rows()
        run.observe(rows, np.random.default_rng(step).integers(0, 2, len(rows)), step)
        draws.append(rows)
    return draws


def test_integration_sampler_saved_as_of_an_earlier_step_goes_on_from_there(tmp_path):
    whole, ahead, resumed = watched(), watched(), watched()
    expected = go(whole, range(8))
    go(ahead, range(6))
    ahead.save(tmp_path / "state", 4)
    resumed.load(tmp_path / "state")
    assert go(resumed, range(5, 8)) == expected[5:]
    assert resumed.metrics["sampling/prompts"] == len(set(expected[-1]))
    with pytest.raises(ValueError, match="states_kept"):
        ahead.save(tmp_path / "state", 3)
    ahead.save(tmp_path / "newest")
    resumed.load(tmp_path / "newest")
    assert go(resumed, range(6, 8)) == expected[6:]


def test_integration_sampler_that_holds_no_states_saves_the_newest_alone(tmp_path):
    run = watched(states_kept=0)
    go(run, range(2))
    run.save(tmp_path / "state", 1)
    with pytest.raises(ValueError, match="states_kept"):
        run.save(tmp_path / "state", 0)
