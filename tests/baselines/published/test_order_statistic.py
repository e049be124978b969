"""What the baselines that take one reward of the group for its mean have in common."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import RewardLog, make_baseline, value_risk
from kaestat.baselines.registry import METHODS
from kaestat.logs.risk import risk_baseline
from kaestat.report.analysis import analyze
from tests.helpers.cases import NO_PAST, groups

BY_RANK = [name for name, method in METHODS.items() if not method.default.estimates_mean]
ROWS = st.lists(st.lists(st.sampled_from([0.0, 1.0, 0.25, 0.5]), min_size=1, max_size=6), min_size=1, max_size=4)
every_one = pytest.mark.parametrize("name", BY_RANK)


def values_of(baseline, rows):
    packed = groups(*rows)
    values = baseline.values(packed, NO_PAST, step=0)
    return [values[p, : len(row)].tolist() for p, row in enumerate(rows)]


@every_one
@given(rows=ROWS)
def test_left_out_a_value_is_a_reward_of_the_others_and_does_not_depend_on_its_own(name, rows):
    left_out = make_baseline(name).leave_one_out()
    values = values_of(left_out, rows)
    for p, row in enumerate(rows):
        for g in range(len(row)):
            rest = row[:g] + row[g + 1 :]
            assert values[p][g] in (rest or [0.0])
            changed = [*rows[:p], [*row[:g], 0.75, *row[g + 1 :]], *rows[p + 1 :]]
            assert values_of(left_out, changed)[p][g] == values[p][g]
    assert left_out.own_derivative(groups(*rows), NO_PAST, step=0) == 0


@every_one
def test_a_log_scores_it_without_its_own_reward_by_name_and_as_an_object(name):
    left_out = make_baseline(name).leave_one_out()
    assert risk_baseline(name) == risk_baseline(make_baseline(name)) == left_out
    rng = np.random.default_rng(0)
    log = RewardLog(np.repeat(np.arange(20), 5), np.zeros(100, dtype=int), rng.integers(0, 2, 100).astype(float))
    mse = value_risk(log, [name, make_baseline(name), left_out], n_boot=0, min_visits=0)["mse"]
    assert mse.nunique() == 1 and mse[0] > 0


def test_a_median_is_not_recommended_even_where_it_is_nearest():
    rng = np.random.default_rng(1)
    rate = np.repeat(rng.choice([0.04, 0.96], 200), 5)
    log = RewardLog(np.repeat(np.arange(200), 5), np.zeros(1000, dtype=int), (rng.random(1000) < rate).astype(float))
    analysis = analyze(log, ["mc_grpo", "rloo"], n_boot=60)
    mse = analysis.risk.set_index("method")["mse"]
    assert mse["mc_grpo"] < 0.8 * mse["rloo"]
    assert analysis.recommendation.method == "rloo"
