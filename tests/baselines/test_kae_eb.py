"""kae_eb and both its ways to use weights against the slow references, and cases by hand."""

from dataclasses import replace

import numpy as np
import pytest

from kaestat import make_baseline
from kaestat.baselines import KaeEb
from tests.helpers import references as ref
from tests.helpers.cases import groups, visits
from tests.helpers.method_case import MethodCase
from tests.helpers.references import kae_eb
from tests.helpers.strategies import groups_of, visits_of
from tests.helpers.tensors import as_torch
from tests.helpers.weighted_references import kae_eb_from_values

WAYS = ("values_at", "from_values_at")


def random_case(seed: int, n_prompts: int, *, drift: float = 0.0, weighted: bool = False) -> ref.Case:
    """Ragged groups and irregular visits of prompts whose success rates drift together by ``drift`` a step."""
    rng = np.random.default_rng(seed)
    step, rate = 30, rng.beta(2, 1, n_prompts)

    def sample(p, at):
        size = rng.integers(1, 6)
        rewards = (rng.random(size) < np.clip(rate[p] + drift * (at - step), 0, 1)).astype(float).tolist()
        return rewards, (rng.exponential(1, size) if weighted else np.ones(size)).tolist()

    now = [sample(p, step) for p in range(n_prompts)]
    steps = [np.sort(rng.choice(step, rng.integers(0, 12), replace=False)) for _ in range(n_prompts)]
    return ref.Case(
        step=step,
        prompts=[f"p{p}" for p in range(n_prompts)],
        rewards=[rewards for rewards, _ in now],
        weights=[weights for _, weights in now],
        past=[[ref.PastVisit(int(at), *sample(p, at)) for at in steps[p]] for p in range(n_prompts)],
    )


def with_weights(case, of):
    """The case with the weight ``of(reward, weight)`` for each completion."""

    def row(rewards, weights):
        return [float(of(z, w)) for z, w in zip(rewards, weights, strict=True)]

    past = [[replace(visit, weights=row(visit.rewards, visit.weights)) for visit in visits] for visits in case.past]
    now = [row(rewards, weights) for rewards, weights in zip(case.rewards, case.weights, strict=True)]
    return replace(case, weights=now, past=past)


def values_of(case, way=None, *, weighted=True, bandwidth=20.0, **params):
    rows, baseline = groups_of(case, weighted=weighted, padding=1.0), KaeEb(bandwidth=bandwidth, **params)
    past = visits_of(case, weighted=weighted, scatter_padding=True)
    if way is None:
        values = baseline.values(rows, past, step=case.step)
    else:
        values = getattr(baseline, way)(rows, past, bandwidth, case.step)
    present = np.ones(rows.reward.shape, dtype=bool) if rows.mask is None else rows.mask
    return np.broadcast_to(values, rows.reward.shape)[present]


@pytest.mark.parametrize("n_prompts", [1, 2, 3, 6, 7, 8, 20])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    "params", [{}, {"kernel": "exponential", "bandwidth": 6.0}, {"bandwidth": 4.0, "cold_start": 0.3}], ids=str
)
def test_values_are_those_of_the_slow_reference(seed, n_prompts, weighted, params):
    case = random_case(seed, n_prompts, drift=0.03 if seed % 2 else 0.0, weighted=weighted)
    expected = np.concatenate(ref.kae_eb(case, **params))

    np.testing.assert_allclose(values_of(case, weighted=weighted, **params), expected, rtol=1e-9, atol=1e-9)


def test_identical_prompts_are_pooled_almost_completely():
    # Group means do not spread at all, so tau^2 is v / K with v = sigma^2 / 4 and lambda = (1/3) / (1/3 + 1/(4 K))
    rows, k = groups(*[[1, 0, 1, 0]] * 40), 39
    shrinkage = (1 / 3) / (1 / 3 + 1 / (4 * k))
    values = make_baseline("kae_eb", bandwidth=20).values(rows, visits(*[[]] * 40), step=0)
    np.testing.assert_allclose(values[:, 0], (1 - shrinkage) / 3 + shrinkage / 2, rtol=1e-9)


def test_others_of_one_completion_each_tell_nothing_of_the_noise_so_that_nothing_is_shrunk():
    rows = groups([1, 0, 1], *[[1]] * 6, *[[0]] * 6)
    values = make_baseline("kae_eb", bandwidth=20).values(rows, visits(*[[]] * 13), step=0)
    np.testing.assert_allclose(values[0], [0.5, 1.0, 0.5], rtol=1e-12)


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


CASES = [
    MethodCase("kae_eb", kae_eb, {"bandwidth": 20.0}, weighted=True),
    MethodCase("kae_eb", kae_eb, {"kernel": "exponential", "bandwidth": 5.0, "cold_start": 0.5}, weighted=True),
]
