"""kae_eb: cross-prompt moments against the slow reference, and cases by hand."""

import numpy as np
import pytest

from kaestat import make_baseline
from tests.helpers import references as ref
from tests.helpers.cases import groups, visits
from tests.helpers.method_case import MethodCase
from tests.helpers.references import kae_eb
from tests.helpers.strategies import groups_of, visits_of


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


def values_of(case, *, weighted=False, **params):
    rows = groups_of(case, weighted=weighted, padding=1.0)
    values = make_baseline("kae_eb", **({"bandwidth": 20} | params)).values(
        rows, visits_of(case, weighted=weighted, scatter_padding=True), step=30
    )
    return [values[p, : len(row)].tolist() for p, row in enumerate(case.rewards)]


@pytest.mark.parametrize("n_prompts", [1, 2, 3, 6, 7, 8, 20])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    "params", [{}, {"kernel": "exponential", "bandwidth": 6.0}, {"bandwidth": 4.0, "cold_start": 0.3}], ids=str
)
def test_values_are_those_of_the_slow_reference(seed, n_prompts, weighted, params):
    case = random_case(seed, n_prompts, drift=0.03 if seed % 2 else 0.0, weighted=weighted)
    expected = np.concatenate(ref.kae_eb(case, **params))

    np.testing.assert_allclose(
        np.concatenate(values_of(case, weighted=weighted, **params)), expected, rtol=1e-9, atol=1e-9
    )


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


CASES = [
    MethodCase("kae_eb", kae_eb, {"bandwidth": 20.0}, weighted=True),
    MethodCase("kae_eb", kae_eb, {"kernel": "exponential", "bandwidth": 5.0, "cold_start": 0.5}, weighted=True),
]
