"""The simulated run: its character, its truth, and that the unbiased risk finds that truth."""

import numpy as np
import pytest

from kaestat import value_risk
from kaestat.datasets import simulated_run

FALSE_FAIL_Z = 4.9  # two-sided probability 1e-6 for a normal mean


@pytest.fixture(scope="module")
def run():
    return simulated_run(n_prompts=600, n_epochs=40)


def test_values_stand_in_the_order_of_the_log(run):
    reward = run.log.frame["reward"].to_numpy()
    standardized = (reward - run.values) / np.sqrt(run.values * (1 - run.values))
    assert abs(standardized.mean()) * np.sqrt(len(reward)) < FALSE_FAIL_Z
    assert np.corrcoef(reward, run.values)[0, 1] > 0.7
    prompt, step = run.log.frame["prompt"], run.log.frame["step"]
    assert (np.diff(run.values.reshape(-1, 8), axis=1) == 0).all()
    assert len(set(zip(prompt, step, run.values, strict=True))) == run.log.n_visits


def test_default_run_has_the_character_of_the_real_one():
    log = simulated_run().log
    units = log.prompt_units
    group_mean = units.total / units.counts
    visits = np.bincount(units.visit_prompt)
    first, late = units.visit_step == 0, units.visit_step == 50
    assert (len(log.prompts), log.time_axis, set(units.counts)) == (1209, "visit", {8})
    assert 44 <= visits.min() and visits.max() <= 57
    assert group_mean[first].mean() == pytest.approx(0.335, abs=0.02)
    assert group_mean[late].mean() == pytest.approx(0.48, abs=0.02)
    assert np.mean(group_mean[first] == 0) == pytest.approx(0.37, abs=0.05)
    assert np.mean(group_mean[late] == 1) == pytest.approx(0.24, abs=0.04)
    risk = value_risk(log, ["grpo", "reinforce++", "kae:bandwidth=10", "kae:bandwidth=40"], n_boot=0)["mse"] * 1e3
    np.testing.assert_allclose(risk, [14.1, 143.6, 2.12, 3.08], rtol=0.08)


def test_seed_decides_the_run():
    one, same, other = (simulated_run(n_prompts=20, n_epochs=6, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.log.frame, same.log.frame)
    np.testing.assert_array_equal(one.values, same.values)
    assert not np.array_equal(one.values[:8], other.values[:8])


def test_group_size_one_and_a_single_prompt_are_possible():
    run = simulated_run(n_prompts=1, n_epochs=3, group_size=1)
    assert (run.log.n_visits, len(run.values)) == (3, 3)


@pytest.mark.parametrize("name", ["n_prompts", "n_epochs", "group_size"])
@pytest.mark.parametrize("size", [0, -1, 2.0, True, "8"])
def test_bad_size_is_named(name, size):
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1"):
        simulated_run(**{name: size})


@pytest.mark.parametrize("seed", [-1, 1.5, "0"])
def test_what_is_no_seed_is_refused_by_name(seed):
    with pytest.raises(ValueError, match="seed must be a whole number of at least 0"):
        simulated_run(n_prompts=2, n_epochs=2, seed=seed)
