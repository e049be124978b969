"""What a step leaves behind for metrics."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator


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


def test_a_step_without_samples_and_a_loaded_state_have_no_record_and_a_refused_step_leaves_it():
    estimator = AdvantageEstimator("kae")
    estimator.step(["a"], [1.0], 0)
    before = estimator.record
    with pytest.raises(ValueError, match="already recorded"):
        estimator.step(["a"], [1.0], 0)
    assert estimator.record is before
    estimator.step(["a"], [1.0], 1, mask=[False])
    assert estimator.record is None
    estimator.step(["a"], [1.0], 2)
    estimator.load_state_dict(estimator.state_dict())
    assert estimator.record is None
