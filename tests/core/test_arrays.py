"""Visits are the sums of their rewards."""

from dataclasses import replace

import numpy as np
import torch

from kaestat import Visits


def test_visits_of_rewards_are_their_sums():
    reward = np.array([[[1.0, 0.5], [0.0, 2.0]], [[1.0, 1.0], [-1.0, 0.0]]])
    weight = np.array([[[1.0, 3.0], [2.0, 0.0]], [[0.5, 0.5], [4.0, 1.0]]])
    visits = Visits.of([5, 2], reward, weight)
    for name, sums in {
        "lag": [[5, 2], [5, 2]],
        "count": [[2, 2], [2, 2]],
        "total": [[1.5, 2], [2, -1]],
        "total_sq": [[1.25, 4], [2, 1]],
        "weight": [[4, 2], [1, 5]],
        "weight_sq": [[10, 4], [0.5, 17]],
        "weighted_total": [[2.5, 0], [1, -4]],
        "weighted_total_sq": [[1.75, 0], [1, 4]],
        "weight_sq_total": [[5.5, 0], [0.5, -16]],
        "weight_sq_total_sq": [[3.25, 0], [0.5, 16]],
    }.items():
        np.testing.assert_array_equal(getattr(visits, name), np.array(sums, dtype=float), err_msg=name)
    assert Visits.of([5, 2], reward).weight is None
    tensors = Visits.of(torch.tensor([5, 2]), torch.from_numpy(reward))
    assert tensors.lag.dtype == torch.float64
    np.testing.assert_array_equal(tensors.total_sq.numpy(), visits.total_sq)


def test_missing_sums_of_squared_weights_are_filled_in_as_if_squares_went_with_weights():
    visits = Visits.of([2, 1], np.array([[[1.0, 0.5], [0.0, 2.0]]]), np.array([[[1.0, 3.0], [0.0, 0.0]]]))
    np.testing.assert_array_equal(visits.mass_sq_carried, [[5.5, 0]])
    without = replace(visits, weight_sq_total=None, weight_sq_total_sq=None)
    np.testing.assert_allclose(without.mass_sq_carried, [[10 * 2.5 / 4, 0]])
    np.testing.assert_allclose(without.mass_sq_carried_sq, [[10 * 1.75 / 4, 0]])
    plain = Visits.of([2, 1], np.array([[[1.0, 0.5], [0.0, 2.0]]]))
    assert plain.mass_sq_carried is plain.total and plain.mass_sq_carried_sq is plain.total_sq


def test_visits_of_successes_are_those_of_rewards_of_0_and_1():
    reward = np.array([[[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]])
    by_rewards, by_successes = Visits.of([5, 2], reward), Visits.of_successes([5, 2], reward.sum(axis=-1), 3)
    for name in ("lag", "count", "total", "total_sq"):
        np.testing.assert_array_equal(getattr(by_successes, name), getattr(by_rewards, name), err_msg=name)
