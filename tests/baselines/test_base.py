"""Carries that a baseline accepts, and the numbers that parameters may be."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from kaestat.baselines import Baseline
from kaestat.core.checks import LARGEST, SMALLEST, check_number, check_positive, check_share


class Counted(Baseline):
    """A baseline with something to carry."""

    def values(self, groups, visits, *, step, carry=None):
        return 0 * groups.reward

    def initial_carry(self):
        return {"count": np.zeros(2), "total": np.zeros((2, 1))}


@pytest.mark.parametrize(
    ("stored", "accepted"),
    [
        ({"count": np.ones(2), "total": np.ones((2, 1))}, True),
        (None, False),
        ({}, False),
        ({"count": np.ones(2), "total": np.ones(2)}, False),
        ({"count": np.ones(2), "total": np.ones((2, 1)), "more": np.ones(1)}, False),
    ],
)
def test_a_stored_carry_has_the_names_and_shapes_of_a_fresh_one(stored, accepted):
    assert Counted().accepts_carry(stored) is accepted


NUMBERS = [3, 3.0, np.float32(3), np.int64(3), np.array(3.0), torch.tensor(3.0)]


@pytest.mark.parametrize("check", [check_number, check_positive])
@pytest.mark.parametrize("value", NUMBERS, ids=[type(value).__name__ for value in NUMBERS])
def test_numbers_of_every_library_become_floats(check, value):
    number = check("x", value)
    assert type(number) is float and number == 3.0


NO_NUMBERS = [True, np.True_, np.array(True), "1", None, [1.0], np.ones(2), Fraction(1, 2)]
NO_NUMBERS += [Decimal("0.5"), 1j, np.array(1j), np.complex128(1j), np.array("1"), np.array(1, dtype=object)]


@pytest.mark.parametrize("check", [check_number, check_positive, check_share])
@pytest.mark.parametrize("value", NO_NUMBERS, ids=[f"{type(value).__name__}-{k}" for k, value in enumerate(NO_NUMBERS)])
def test_what_is_no_number_is_refused_by_name(check, value):
    with pytest.raises(TypeError, match=r"x must be a number"):
        check("x", value)


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        ({}, "x must be positive, from 1e-70 to 1e.70, got"),
        ({"allow_zero": True}, "x must be non-negative, from 0 to 1e.70, got"),
        ({"allow_inf": True}, "x must be positive, from 1e-70 to inf, got"),
        ({"allow_zero": True, "allow_inf": True}, "x must be non-negative, from 0 to inf, got"),
    ],
)
def test_positive_means_above_zero_and_below_infinity_unless_these_are_allowed(allowed, message):
    accepted = {value: True for value in (SMALLEST, 1.0, LARGEST)}
    accepted |= {0.0: "allow_zero" in allowed, math.inf: "allow_inf" in allowed, -1e-9: False, math.nan: False}
    for value, fine in accepted.items():
        if fine:
            assert check_positive("x", value, **allowed) == value
        else:
            with pytest.raises(ValueError, match=message):
                check_positive("x", value, **allowed)


def test_numbers_are_finite_and_their_fourth_powers_do_not_overflow():
    assert LARGEST**4 < math.inf and SMALLEST**4 > 0
    for value in (-LARGEST, -1.0, 0.0, SMALLEST / 2, LARGEST):
        assert check_number("x", value) == value
    for value in (math.inf, -math.inf, math.nan, -2 * LARGEST, 2 * LARGEST, 10**400):
        with pytest.raises(ValueError, match="x must be finite"):
            check_number("x", value)


def test_shares_lie_between_zero_and_one_with_one_and_where_allowed_zero():
    for value in (SMALLEST, 0.5, 1.0):
        assert check_share("x", value) == check_share("x", value, allow_zero=True) == value
    assert check_share("x", 0.0, allow_zero=True) == 0.0
    with pytest.raises(ValueError, match=r"x must be positive, from 1e-70 to 1, got 0.0"):
        check_share("x", 0.0)
    for value in (-0.1, 1.1, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"x must be non-negative, from 0 to 1, got"):
            check_share("x", value, allow_zero=True)
