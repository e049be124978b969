"""kae_eb with weights: both ways to use them, against the slow reference and against no weights."""

from dataclasses import replace

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.baselines import KaeEb
from kaestat.core.storage import pack_arrays
from kaestat.smoothing.selectors import Auto
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


def a_run(n_steps=14, seed=0):
    """Steps of (ids, rewards, weights): twelve prompts, nine at each step, ragged groups, wrong answers heavy."""
    rng = np.random.default_rng(seed)
    value, steps = rng.beta(2, 1, 12), []
    for _ in range(n_steps):
        ids = np.repeat(rng.permutation(12)[:9], rng.integers(1, 4, 9))
        rewards = (rng.random(len(ids)) < value[ids]).astype(float)
        steps.append((ids.tolist(), rewards, np.where(rewards > 0, 1.0, 5.0) * rng.exponential(1, len(ids))))
    return steps


def served(estimator, steps, first=0):
    answers = []
    for step, (ids, rewards, weights) in enumerate(steps, first):
        estimator.step(ids, rewards, step, weights=weights)
        answers.append(estimator.values)
    return answers


def test_a_state_that_knew_one_way_goes_on_with_both():
    """As states do that were written before there were two: the losses of its bandwidths are those of each way."""
    steps = a_run()
    estimator = AdvantageEstimator("kae_eb")
    served(estimator, steps[:9])
    state = estimator.state
    n = len(Auto().running.candidates)
    assert set(state.carry) == {"loss", "scored", "ways"} and state.carry["loss"].shape == (2 * n,)
    one_way = replace(state, carry={"loss": state.carry["loss"][:n], "scored": state.carry["scored"]})
    other = AdvantageEstimator("kae_eb")
    other.load_state_dict(pack_arrays(one_way.snapshot("kae_eb")()))
    continued = served(other, steps[9:], 9)
    assert all(np.isfinite(values).all() for values in continued)
    assert other.state.carry["loss"].shape == (2 * n,)
