"""The local-level Kalman filter across steps (design, section 4)."""

from statistics import fmean

import numpy as np
import pytest

from kaestat import make_baseline
from tests.helpers.cases import groups, visits
from tests.helpers.method_case import MethodCase
from tests.helpers.references import others, per_completion

KNOWN = {"drift_variance": 0.1, "initial_mean": 0.5, "initial_variance": 0.3, "reward_variance": 0.2}


def test_one_visit_and_a_group_by_hand():
    # visit, two successes: gain .3 / (.3 + .2/2) = .75, mean .5 + .75*.5 = .875, variance .25*.3 = .075
    # two steps on: .075 + 2*.1 = .275; the other completion: gain .275 / (.275 + .2) = .275/.475
    values = make_baseline("kalman", **KNOWN).values(groups([1, 0]), visits([(2, [1, 1])]), step=5)
    gain = 0.275 / 0.475
    np.testing.assert_allclose(values, [[0.875 * (1 - gain), 0.875 + gain * 0.125]], rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "value"),
    [("drift_variance", -1e-9), ("initial_variance", 0), ("reward_variance", 0), ("variance_count", 0)],
)
def test_variances_must_make_a_filter(name, value):
    with pytest.raises(ValueError, match=name):
        make_baseline("kalman", **{name: value})


def test_the_plug_in_variance_of_a_prompt_that_always_succeeds_is_kept_from_zero():
    given = {"initial_mean": 1.0, "drift_variance": 0.01}
    past, group = visits([(2, [1, 1])]), groups([1, 0])
    plugged_in = make_baseline("kalman", **given).values(group, past, step=5)
    known = make_baseline("kalman", **given, reward_variance=1e-4).values(group, past, step=5)
    np.testing.assert_allclose(plugged_in, known, rtol=1e-12)


@pytest.mark.parametrize("params", [{}, KNOWN], ids=["plugged in", "known"])
def test_padding_is_divided_by_nowhere(params):
    past = visits([(9, [1, 0]), (2, [1])], [(4, [1, 1, 0])], [])
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        values = make_baseline("kalman", **params).values(groups([1, 0], [1, 0, 1], [1, 1]), past, step=10)
    assert np.isfinite(values).all()


def kalman(case, *, drift=2e-4, mean=0.5, variance=1 / 12, reward_variance=None, pseudo=2.0):
    """The filter of a random walk, one step at a time, one group mean at a time."""

    def value(p, g):
        past = [z for visit in case.past[p] for z in visit.rewards]
        m = (sum(past) + pseudo * mean) / (len(past) + pseudo)
        square = (sum(z * z for z in past) + pseudo * mean) / (len(past) + pseudo)
        s2 = max(square - m * m, 1e-4) if reward_variance is None else reward_variance
        x, v, now = mean, variance, None
        visits = [(visit.step, visit.rewards) for visit in case.past[p]] + [(case.step, others(case.rewards[p], g))]
        for step, rewards in visits:
            if now is not None:
                v += drift * (step - now)
            now = step
            if rewards:
                gain = v / (v + s2 / len(rewards))
                x, v = x + gain * (fmean(rewards) - x), (1 - gain) * v
        return x

    return per_completion(case, value)


CASES = [
    MethodCase("kalman", kalman),
    MethodCase(
        "kalman",
        lambda case, **params: kalman(case, drift=0.01, mean=0.3, variance=0.2, reward_variance=0.1),
        {"drift_variance": 0.01, "initial_mean": 0.3, "initial_variance": 0.2, "reward_variance": 0.1},
    ),
]
