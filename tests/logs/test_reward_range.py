"""Relabelled rewards: what a log's numbers mean must not change which method is best."""

import numpy as np
import pytest

from kaestat import RewardLog, value_risk
from kaestat.logs.reward_range import reward_range
from kaestat.report.analysis import default_methods
from tests.helpers.made_logs import relabelled, several_rewards, small_run

LOG = small_run(n_prompts=40, n_epochs=8, group_size=4)
START_FROM_ZERO = {"none", "krpo"}  # the published values begin from 0, which another label of failure moves


BOTH = [(log, scale, shift) for log in (LOG, several_rewards(LOG)) for scale, shift in ((2.0, -1.0), (100.0, 0.0))]


@pytest.mark.parametrize(("log", "scale", "shift"), [*BOTH, (LOG, 0.5, 0.2)])
def test_relabelling_changes_no_ratio(log, scale, shift):
    methods = default_methods()
    plain = value_risk(log, methods, n_boot=0)
    labelled = value_risk(relabelled(log, scale=scale, shift=shift), methods, n_boot=0)
    same = np.array([shift == 0 or method not in START_FROM_ZERO for method in methods])
    assert same.sum() >= len(methods) - 2
    np.testing.assert_allclose(labelled["vs_grpo"][same], plain["vs_grpo"][same], rtol=2e-5)
    np.testing.assert_allclose(labelled["mse"][same], scale**2 * plain["mse"][same], rtol=2e-5)


WITHIN = [([0, 1, 0.5], (0, 1)), ([0.2, 0.3, 0.4], (0, 1)), ([1, 1], (0, 1))]
BEYOND = [([0, 0.5], (0, 0.5)), ([-1, 1], (-1, 1)), ([0, 30, 100], (0, 100)), ([-3, -3], (-3, 1)), ([7, 7], (0, 7))]


@pytest.mark.parametrize(("reward", "expected"), WITHIN + BEYOND)
def test_range_is_zero_to_one_where_it_can_be(reward, expected):
    assert reward_range(RewardLog(["a"] * len(reward), [0] * len(reward), reward)) == expected


def test_a_range_that_was_given_is_used():
    log = relabelled(LOG, scale=2, shift=-1)
    given = value_risk(log, ["spo:low=-1,high=1", "spo:low=-1,high=3", "spo"], n_boot=0)["mse"]
    assert given[0] == given[2] != given[1]
