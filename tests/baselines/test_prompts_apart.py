"""What a baseline must not mix up: prompts that share a step, and replicates along leading axes."""

from dataclasses import replace

import numpy as np
import pytest

from kaestat import Groups, Visits, make_baseline
from kaestat.baselines.registry import parse_method
from tests.helpers.cases import groups, visits

APART = (
    "none grpo rloo pooled krpo kae:bandwidth=10 kae:normalization=algorithm1,bandwidth=6 "
    "kae:kernel=exponential,bandwidth=10 kae_stream kalman kalman:reward_variance=0.2 spo spo:rho=0.5 local_linear "
    "local_polynomial:degree=3 sieve sieve:basis=polynomial,n_basis=4 sieve:n_basis=5,degree=3"
).split()
TOGETHER = """reinforce++ james_stein james_stein:paper_factor=true kae_eb:bandwidth=20
    kae kae_eb bayes_filter ebpo""".split()
REWARDS = [[1, 0, 1], [0, 1], [1, 1, 1, 0], [0, 0]]
PAST = [
    [(9, [1, 1, 0]), (7, [1]), (6, [0, 1]), (4, [1, 1]), (3, [0, 1, 1]), (1, [1])],
    [(8, [0, 0]), (2, [1, 0, 0])],
    [(5, [1])],
    [(7, [0]), (6, [1, 0]), (4, [0, 0]), (1, [0, 1])],
]


def baseline_of(method):
    name, params = parse_method(method)
    return make_baseline(name, **params)


@pytest.mark.parametrize("method", APART)
def test_prompts_of_a_step_do_not_touch_each_other(method):
    baseline = baseline_of(method)
    values = baseline.values(groups(*REWARDS), visits(*PAST), step=10)
    for p, (rewards, past) in enumerate(zip(REWARDS, PAST, strict=True)):
        alone = baseline.values(groups(rewards), visits(past), step=10)
        np.testing.assert_allclose(values[p, : len(rewards)], alone[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", TOGETHER)
def test_a_prompt_without_completions_changes_nothing_for_the_others(method):
    baseline, rewards, past = baseline_of(method), [*REWARDS, [1]] * 3, [*PAST, [(3, [0, 1])]] * 3
    some = groups(*rewards)
    with_it, beside = groups(rewards[0], [], *rewards[1:]), visits(past[0], [], *past[1:])
    for of in (baseline.values, baseline.own_derivative):
        without = of(some, visits(*past), step=10) + np.zeros_like(some.reward)
        found = np.delete(of(with_it, beside, step=10) + np.zeros_like(with_it.reward), 1, axis=0)
        np.testing.assert_allclose(found[some.mask], without[some.mask], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", APART + TOGETHER)
def test_leading_axes_are_so_many_steps_of_their_own(method):
    baseline, order = baseline_of(method), [2, 0, 3, 1]
    cases = [(groups(*REWARDS), visits(*PAST))]
    swapped = ([REWARDS[p] for p in order], [PAST[p] for p in order])
    cases.append((groups(*swapped[0]), visits(*swapped[1])))
    stacked = Groups(*(np.stack([getattr(g, name) for g, _ in cases])[:, None] for name in ("reward", "mask")))
    fields = ("lag", "count", "total", "total_sq")
    past = Visits(**{name: np.stack([getattr(v, name) for _, v in cases])[:, None] for name in fields})

    values = baseline.values(stacked, past, step=10)
    own = baseline.own_derivative(stacked, past, step=10) + np.zeros_like(stacked.reward)
    for k, (one, before) in enumerate(cases):
        for together, alone in (
            (values, baseline.values(one, before, step=10)),
            (own, baseline.own_derivative(one, before, step=10)),
        ):
            alone = alone + np.zeros_like(one.reward)
            np.testing.assert_allclose(together[k, 0][one.mask], alone[one.mask], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", APART + TOGETHER)
def test_replicates_without_any_past_are_those_of_a_step_without(method):
    baseline, group = baseline_of(method), groups(*REWARDS)
    stacked = Groups(reward=group.reward[None, None], mask=group.mask[None, None])
    nothing = np.zeros((4, 0))
    none, past = (
        Visits(**dict.fromkeys(("lag", "count", "total", "total_sq"), column))
        for column in (nothing[None, None], nothing)
    )
    values = baseline.values(stacked, none, step=0)[0, 0]
    np.testing.assert_allclose(values[group.mask], baseline.values(group, past, step=0)[group.mask], rtol=1e-12)


@pytest.mark.parametrize("method", APART + TOGETHER)
@pytest.mark.parametrize("gap", [1, 2, 3, 6])
def test_padding_between_visits_is_as_none(method, gap):
    """Columns without a visit, several in a row and anywhere, whatever their lag."""
    baseline, packed, rng = baseline_of(method), visits(*PAST), np.random.default_rng(gap)
    spread = {}
    for name in ("lag", "count", "total", "total_sq"):
        column = getattr(packed, name)
        wide = np.zeros((len(column), column.shape[1] * (gap + 1)))
        if name == "lag":
            wide = rng.uniform(0.0, 50.0, wide.shape)
        wide[:, :: gap + 1] = column
        spread[name] = wide
    group = groups(*REWARDS)
    values = baseline.values(group, replace(packed, **spread), step=10)
    expected = baseline.values(group, packed, step=10)
    np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-9)

    stacked = Groups(reward=group.reward[None, None], mask=group.mask[None, None])
    past = Visits(**{name: column[None, None] for name, column in spread.items()})
    np.testing.assert_allclose(baseline.values(stacked, past, step=10)[0, 0], expected, rtol=1e-9, atol=1e-9)
