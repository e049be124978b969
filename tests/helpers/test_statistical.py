"""The helper behind the statistical tests keeps the error rates it promises."""

import numpy as np
import pytest
from scipy.special import ndtr

from tests.helpers.statistical import Discrepancy, check_mean, generator


def raises_discrepancy(**arguments) -> bool:
    try:
        check_mean(**arguments)
    except Discrepancy:
        return True
    return False


def test_a_mean_at_the_target_passes_and_one_off_by_detect_fails():
    observations = generator(1).standard_normal(10_000)
    check_mean(observations, target=0.0, detect=0.1)
    with pytest.raises(Discrepancy, match="off by"):
        check_mean(observations + 0.1, target=0.0, detect=0.1)


@pytest.mark.parametrize("side", ["equal", "at least", "at most"])
def test_power_at_the_smallest_accepted_discrepancy_is_as_promised(side):
    false_fail, power = 0.01, 0.9
    quantile = {"equal": 2.5758293, "at least": 2.3263479, "at most": 2.3263479}[side]
    smallest = quantile + 1.2815516
    arguments = dict(se=1.0, target=0.0, side=side, false_fail=false_fail, power=power)
    with pytest.raises(ValueError, match="cannot deliver"):
        check_mean(estimate=0.0, detect=smallest - 1e-3, **arguments)
    check_mean(estimate=0.0, detect=smallest + 1e-3, **arguments)
    # A mean off by `smallest` raises beyond `quantile`, that is with this probability:
    assert ndtr(smallest - quantile) == pytest.approx(power)
    sign = -1 if side == "at least" else 1
    assert raises_discrepancy(estimate=sign * (quantile + 1e-6), detect=smallest + 1, **arguments)
    assert not raises_discrepancy(estimate=sign * (quantile - 1e-6), detect=smallest + 1, **arguments)


def test_too_few_replicates_are_refused_even_when_the_mean_is_right():
    observations = np.resize([-1.0, 1.0], 200)
    with pytest.raises(ValueError, match="times as many"):
        check_mean(observations, target=0.0, detect=0.1)
    with pytest.raises(ValueError, match="at least 100"):
        check_mean(observations[:50], target=0.0, detect=100.0)


def test_missing_or_meaningless_input_is_refused():
    for arguments in (
        dict(target=0.0, detect=1.0),
        dict(estimate=0.0, target=0.0, detect=1.0),
        dict(estimate=np.nan, se=0.1, target=0.0, detect=1.0),
        dict(estimate=0.0, se=0.1, target=0.0, detect=0.0),
        dict(estimate=0.0, se=0.1, target=0.0, detect=1.0, side="near"),
        dict(estimate=0.0, se=0.1, target=0.0, detect=1.0, power=0.3),
    ):
        with pytest.raises(ValueError):
            check_mean(**arguments)


def test_the_environment_variable_varies_all_seeds(monkeypatch):
    monkeypatch.delenv("KAESTAT_TEST_SEED", raising=False)
    fixed = generator(7).random()
    assert fixed == generator(7).random()
    assert fixed != generator(8).random()
    monkeypatch.setenv("KAESTAT_TEST_SEED", "1")
    assert fixed != generator(7).random()
