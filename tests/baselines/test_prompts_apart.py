"""Baselines that pool prompts leave out prompts without completions."""

import numpy as np
import pytest

from kaestat import make_baseline
from kaestat.baselines.registry import parse_method
from tests.helpers.cases import groups, visits

TOGETHER = """reinforce++ james_stein james_stein:paper_factor=true kae_eb:bandwidth=20
    kae kae_eb bayes_filter ebpo""".split()
REWARDS = [[1, 0, 1], [0, 1], [1, 1, 1, 0], [0, 0]]
PAST = [
    [(9, [1, 1, 0]), (7, [1]), (6, [0, 1]), (4, [1, 1]), (3, [0, 1, 1]), (1, [1])],
    [(8, [0, 0]), (2, [1, 0, 0])],
    [(5, [1])],
    [(7, [0]), (6, [1, 0]), (4, [0, 0]), (1, [0, 1])],
]


@pytest.mark.parametrize("method", TOGETHER)
def test_a_prompt_without_completions_changes_nothing_for_the_others(method):
    name, params = parse_method(method)
    baseline, rewards, past = make_baseline(name, **params), [*REWARDS, [1]] * 3, [*PAST, [(3, [0, 1])]] * 3
    some = groups(*rewards)
    with_it, beside = groups(rewards[0], [], *rewards[1:]), visits(past[0], [], *past[1:])
    for of in (baseline.values, baseline.own_derivative):
        without = of(some, visits(*past), step=10) + np.zeros_like(some.reward)
        found = np.delete(of(with_it, beside, step=10) + np.zeros_like(with_it.reward), 1, axis=0)
        np.testing.assert_allclose(found[some.mask], without[some.mask], rtol=1e-9, atol=1e-12)
