"""SPO (Xu and Ding, 2025): the Beta tracker, before the update."""

import numpy as np
import pytest

from kaestat import make_baseline
from tests.helpers.cases import groups, visits
from tests.helpers.method_case import MethodCase
from tests.helpers.references import per_completion


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prior_mean", -0.1),
        ("prior_mean", 1.1),
        ("prior_count", 0),
        ("prior_count", -1),
        ("rho", 0),
        ("rho", 1.01),
    ],
)
def test_a_tracker_that_is_none_is_refused(name, value):
    with pytest.raises(ValueError, match=name):
        make_baseline("spo", **{name: value})


def test_a_factor_of_one_never_forgets():
    baseline = make_baseline("spo", rho=1, prior_count=1)
    values = baseline.values(groups([0]), visits([(9, [1, 1]), (1, [1])]), step=12)
    np.testing.assert_allclose(values, 3.5 / 4, rtol=1e-12)


def test_a_step_of_thousands_of_prompts_gives_each_the_value_that_it_has_alone():
    # forgetting summed over all of them would be exp(-4000 * 2 * log 2), which is 0 in double precision
    past = [(3, [1, 0]), (2, [1])]
    baseline = make_baseline("spo", rho=0.5)
    alone = baseline.values(groups([1]), visits(past), step=9)
    together = baseline.values(groups(*[[1]] * 4000), visits(*[past] * 4000), step=9)
    np.testing.assert_allclose(together, np.broadcast_to(alone, (4000, 1)), rtol=1e-12)


def spo(case, *, rho=None, prior_mean=0.5, prior_count=8):
    """The Beta tracker of each prompt, visit by visit; nothing of the current group enters."""

    def value(p, g):
        a, b = prior_mean * prior_count, (1 - prior_mean) * prior_count
        for visit in case.past[p]:
            keep = rho if rho is not None else min(max(2 ** (-visit.divergence / 0.06), 0.875), 0.96)
            a = keep * a + sum(visit.rewards)
            b = keep * b + sum(1 - z for z in visit.rewards)
        return a / (a + b)

    return per_completion(case, value)


CASES = [MethodCase("spo", spo), MethodCase("spo", spo, {"rho": 0.5, "prior_mean": 0.9, "prior_count": 3.0})]
