"""Estimates drawn in table cells: dots, lines and ticks on one axis."""

import math
import re

import pytest

from kaestat.report.interval_marks import HEIGHT, MARGIN, WIDTH, interval_marks

NAN = math.nan


def ticks(axis):
    return {float(text): float(x) for x, text in re.findall(r'<text x="([^"]+)"[^>]*>([^<]+)<', axis)}


def dot(mark):
    return float(re.search(r'cx="([^"]+)"', mark)[1])


def line(mark):
    return tuple(map(float, re.search(r'class="interval" x1="([^"]+)" x2="([^"]+)"', mark).groups()))


def test_positive_numbers_stand_on_a_logarithmic_axis():
    axis, marks, logarithmic = interval_marks([2.0, 20.0, 200.0], [1.0, 10.0, 100.0], [4.0, 40.0, 400.0])
    assert logarithmic and list(ticks(axis)) == [1.0, 10.0, 100.0]
    one, ten, hundred = ticks(axis).values()
    assert ten - one == pytest.approx(hundred - ten, abs=0.2)
    for k, mark in enumerate(marks):
        shift = k * (ten - one)
        assert dot(mark) == pytest.approx(one + shift + math.log10(2) * (ten - one), abs=0.2)
        assert line(mark) == pytest.approx((one + shift, one + shift + math.log10(4) * (ten - one)), abs=0.2)


def test_an_interval_that_reaches_zero_makes_the_axis_linear():
    axis, marks, logarithmic = interval_marks([1.0, 3.0], [-1.0, 2.0], [3.0, 4.0])
    at = ticks(axis)
    assert not logarithmic and 0.0 in at
    step = (at[4.0] - at[0.0]) / 4
    assert [dot(mark) for mark in marks] == pytest.approx([at[0.0] + step, at[0.0] + 3 * step], abs=0.2)
    assert line(marks[0]) == pytest.approx((at[0.0] - step, at[0.0] + 3 * step), abs=0.2)


@pytest.mark.parametrize("numbers", [(3.0, 4.0), (9.5, 11.0), (5.0, 5.0), (0.0, 0.0), (-0.5, -0.2), (1e-9, 1e9)])
def test_there_are_two_ticks_or_more_and_everything_is_inside(numbers):
    axis, marks, _ = interval_marks(numbers, numbers, numbers)
    assert len(ticks(axis)) >= 2
    for place in (*ticks(axis).values(), *map(dot, marks)):
        assert MARGIN - 0.1 <= place <= WIDTH - MARGIN + 0.1
    assert f'height="{HEIGHT}"' in axis


def test_without_an_interval_there_is_a_dot_alone_and_without_an_estimate_nothing():
    _, marks, _ = interval_marks([1.0, 2.0, NAN], [NAN, 1.5, NAN], [NAN, 2.5, NAN])
    assert ["circle" in mark for mark in marks] == [True, True, False]
    assert ['class="interval"' in mark for mark in marks] == [False, True, False]


def test_nothing_to_draw_is_refused():
    with pytest.raises(ValueError, match="estimates has no finite number"):
        interval_marks([NAN], [1.0], [2.0])
