"""KRPO (Wang et al., 2025): golden numbers, and masks."""

import numpy as np

from kaestat import AdvantageEstimator, Groups, make_baseline
from tests.helpers.cases import NO_PAST, groups
from tests.helpers.method_case import MethodCase

GOLDEN = [0.0995, -7.0481, -5.7514, -4.9725]


def test_the_filter_begins_anew_at_every_step_for_every_group_also_where_prompts_interleave():
    estimator = AdvantageEstimator("krpo")
    for step in range(2):
        advantages = estimator.step(list("abababab"), [1.0, 1, 0, 0, 0, 0, 0, 0], step)
        np.testing.assert_allclose(advantages, np.repeat(GOLDEN, 2), atol=1e-4)


def test_a_masked_completion_leaves_no_trace_in_the_filter():
    rewards = np.array([[1.0, 9.0, 0.0, 0.0]])
    masked = Groups(reward=rewards, mask=np.array([[True, False, True, True]]))
    baseline, plain = make_baseline("krpo"), groups([1, 0, 0])
    for of in (baseline.values, baseline.deviation, baseline.own_derivative):
        np.testing.assert_allclose(of(masked, NO_PAST, step=0)[:, [0, 2, 3]], of(plain, NO_PAST, step=0), rtol=1e-12)


def krpo_filter(rewards, *, q=1e-5, r=1e-2, x0=0.0, p0=1.0):
    """State and variance after each completion of one group."""
    x, p, path = x0, p0, []
    for z in rewards:
        prior = p + q
        gain = prior / (prior + r)
        x += gain * (z - x)
        p = (1 - gain) * prior
        path.append((x, p))
    return path


def krpo(case):
    return [[x for x, _ in krpo_filter(row)] for row in case.rewards]


CASES = [MethodCase("krpo", krpo)]
