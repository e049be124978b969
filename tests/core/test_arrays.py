"""Visits are the sums of their rewards."""

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


def test_visits_of_successes_are_those_of_rewards_of_0_and_1():
    reward = np.array([[[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]])
    by_rewards, by_successes = Visits.of([5, 2], reward), Visits.of_successes([5, 2], reward.sum(axis=-1), 3)
    for name in ("lag", "count", "total", "total_sq"):
        np.testing.assert_array_equal(getattr(by_successes, name), getattr(by_rewards, name), err_msg=name)
