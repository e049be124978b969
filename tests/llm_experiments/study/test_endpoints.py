"""What a curve comes to, on curves whose answers are known."""

import numpy as np
import pandas as pd
import pytest

from llm_experiments.study.endpoints import area, completions_to, on_grid

GRID = np.linspace(0, 100, 101)


def test_a_straight_line_is_crossed_where_it_is():
    line = GRID / 100
    assert completions_to(0.25, line, GRID) == pytest.approx(25)
    assert area(line, GRID) == pytest.approx(0.5)


def test_one_lucky_test_is_no_crossing():
    lucky = GRID / 200
    lucky[10] = 0.4
    assert completions_to(0.4, lucky, GRID) > 70


def test_runs_are_read_between_their_own_tests():
    curves = pd.DataFrame({"seed": [1, 0, 1, 0], "generated": [0, 0, 200, 100], "matched": [0.0, 0.2, 1.0, 0.4]})
    assert on_grid(curves, "matched", np.array([50.0])).tolist() == [[pytest.approx(0.3)], [pytest.approx(0.25)]]
