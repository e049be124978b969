"""kae_eb with weights: both ways to use them, against the slow reference and against no weights."""

from dataclasses import replace

import numpy as np
import pytest

from kaestat.baselines import KaeEb
from tests.baselines.test_kae_eb import random_case
from tests.helpers.strategies import groups_of, visits_of
from tests.helpers.tensors import as_torch
from tests.helpers.weighted_references import kae_eb_from_values

WAYS = ("values_at", "from_values_at")


def with_weights(case, of):
    """The case with the weight ``of(reward, weight)`` for each completion."""

    def row(rewards, weights):
        return [float(of(z, w)) for z, w in zip(rewards, weights, strict=True)]

    past = [[replace(visit, weights=row(visit.rewards, visit.weights)) for visit in visits] for visits in case.past]
    now = [row(rewards, weights) for rewards, weights in zip(case.rewards, case.weights, strict=True)]
    return replace(case, weights=now, past=past)


def values_of(case, way="values_at", *, weighted=True, bandwidth=20.0):
    rows = groups_of(case, weighted=weighted, padding=1.0)
    values = getattr(KaeEb(bandwidth=bandwidth), way)(rows, visits_of(case, weighted=weighted), bandwidth, case.step)
    present = np.ones(rows.reward.shape, dtype=bool) if rows.mask is None else rows.mask
    return np.broadcast_to(values, rows.reward.shape)[present]


@pytest.mark.parametrize("n_prompts", [1, 2, 6, 7, 20])
@pytest.mark.parametrize("seed", range(4))
def test_the_way_from_values_is_that_of_the_slow_reference(seed, n_prompts):
    case = random_case(seed, n_prompts, drift=0.03 if seed % 2 else 0.0, weighted=True)
    case = with_weights(case, lambda z, w: w * (4.0 if z == 0 else 1.0))
    expected = np.concatenate(kae_eb_from_values(case))
    np.testing.assert_allclose(values_of(case, "from_values_at"), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_weights_that_a_line_makes_negative_do_not_throw_values_out_of_the_rewards(seed):
    """Rewards of many values, the smallest of which are heavy: ``alpha + beta Z`` crosses 0, and values were 1e11."""
    case = random_case(seed, 8)
    rng = np.random.default_rng(seed)

    def graded(rewards):
        return [float(rng.choice([0, 0.25, 0.5, 1.0])) for _ in rewards]

    past = [[replace(visit, rewards=graded(visit.rewards)) for visit in visits] for visits in case.past]
    case = replace(case, rewards=[graded(rewards) for rewards in case.rewards], past=past)
    case = with_weights(case, lambda z, w: 30.0 if z == 0 else 1.0)
    values = values_of(case, "from_values_at")
    np.testing.assert_allclose(values, np.concatenate(kae_eb_from_values(case)), rtol=1e-9, atol=1e-9)
    assert values.min() > -1e-12 and values.max() < 1 + 1e-12


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n_prompts", [1, 3, 7, 20])
@pytest.mark.parametrize("seed", range(4))
def test_constant_weights_give_the_values_without_weights(seed, n_prompts, way):
    case = random_case(seed, n_prompts, drift=0.03 if seed % 2 else 0.0)
    plain = values_of(case, weighted=False)
    np.testing.assert_allclose(values_of(with_weights(case, lambda z, w: 3.7), way), plain, rtol=1e-9, atol=1e-11)


def test_torch_gives_what_numpy_gives():
    case = random_case(1, 12, weighted=True, drift=0.03)
    rows, past = groups_of(case, weighted=True), visits_of(case, weighted=True)
    for way in WAYS:
        expected = getattr(KaeEb(), way)(rows, past, 20.0, 30)
        got = getattr(KaeEb(), way)(as_torch(rows), as_torch(past), 20.0, 30)
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-9, atol=1e-11)
