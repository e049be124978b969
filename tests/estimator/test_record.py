"""What a step leaves behind for metrics."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.baselines import Kae
from tests.helpers.estimators import UNWEIGHTED, make


def test_the_record_holds_the_step_as_rows_with_the_past_and_carry_of_before():
    estimator = AdvantageEstimator("kae", bandwidth=10.0)
    assert estimator.record is None
    estimator.step(["a", "b"], [1.0, 0.0], 0)
    advantages = estimator.step(["b", "a", "b", "c"], [1.0, 0.0, 0.0, 0.0], 3, mask=[True, True, True, False])

    record = estimator.record
    assert record.step == 3 and record.packing.keys == ["b", "a"] == record.groups.prompt_ids
    np.testing.assert_array_equal(record.groups.reward, [[1, 0], [0, 0]])
    np.testing.assert_array_equal(record.groups.mask, [[1, 1], [1, 0]])
    np.testing.assert_array_equal(record.visits.total[:, -1], [0, 1])
    np.testing.assert_array_equal(record.visits.lag[:, -1], [3, 3])
    np.testing.assert_array_equal(record.packing.unpack(record.values), estimator.values[:3])
    np.testing.assert_array_equal(record.packing.unpack(record.advantages), advantages[:3])


def test_the_carry_of_the_record_is_that_of_before_the_step():
    estimator = AdvantageEstimator("ebpo")
    estimator.step(["a", "a"], [1.0, 0.0], 0)
    np.testing.assert_array_equal(estimator.record.carry["rewards"], [0, 0, 0])
    estimator.step(["a", "a"], [1.0, 0.0], 1)
    np.testing.assert_array_equal(estimator.record.carry["rewards"], [2, 0.5, 0.5])


def test_a_step_without_samples_and_a_loaded_state_have_no_record():
    estimator = AdvantageEstimator("kae")
    estimator.step(["a"], [1.0], 0)
    estimator.step(["a"], [1.0], 1, mask=[False])
    assert estimator.record is None
    estimator.step(["a"], [1.0], 2)
    estimator.load_state_dict(estimator.state_dict())
    assert estimator.record is None


def test_a_refused_step_leaves_the_record_as_it_was():
    estimator = AdvantageEstimator("kae")
    estimator.step(["a"], [1.0], 0)
    before = estimator.record
    with pytest.raises(ValueError, match="already recorded"):
        estimator.step(["a"], [1.0], 0)
    assert estimator.record is before


@pytest.mark.parametrize("kind", [np.array, list])
@pytest.mark.parametrize("name", UNWEIGHTED)
def test_what_the_caller_does_to_its_arrays_does_not_reach_the_record(name, kind):
    estimator = make(name)
    rewards = kind([1.0, 0.0, 0.0, 1.0])
    advantages = estimator.step(["p0", "p0", "p1", "p1"], rewards, 0)
    kept = [np.array(array) for array in (estimator.record.groups.reward, estimator.record.values)]
    kept.append(np.array(estimator.record.advantages))
    rewards[0], advantages[:], estimator.values[:] = 9.0, 9.0, 9.0

    now = (estimator.record.groups.reward, estimator.record.values, estimator.record.advantages)
    for array, before in zip(now, kept, strict=True):
        np.testing.assert_array_equal(array, before)


def test_a_settled_baseline_gives_the_same_values_and_leaves_a_formula_as_it_is():
    estimator = AdvantageEstimator("kae", bandwidth="loo_cv")
    rng = np.random.default_rng(0)
    for step in range(6):
        estimator.step(["a", "b"] * 4, rng.random(8), step)
    record = estimator.record
    settled = estimator.baseline.serve(record.groups, record.visits, step=5).settled
    assert settled is not estimator.baseline and settled.bandwidth.resolved
    np.testing.assert_array_equal(settled.values(record.groups, record.visits, step=5), record.values)
    assert estimator.baseline == AdvantageEstimator("kae", bandwidth="loo_cv").baseline

    formula = Kae(bandwidth="rate")
    assert formula.serve(record.groups, record.visits, step=5).settled is formula
