"""The local-level Kalman filter across steps (design, section 4)."""

from statistics import fmean

import numpy as np
import pytest

from kaestat import make_baseline
from tests.helpers.cases import groups, visits
from tests.helpers.method_case import MethodCase
from tests.helpers.references import others, per_completion


@pytest.mark.parametrize(
    ("name", "value"),
    [("drift_variance", -1e-9), ("initial_variance", 0), ("reward_variance", 0)],
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
