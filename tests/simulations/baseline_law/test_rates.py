"""The search for rates: it grows, and an edge is refused."""

import numpy as np
import pytest

from simulations.baseline_law.rates import MOST_RATES, RateAtEdge, best_rate, rates_of_bases, search


def peaked(best):
    """Areas on two bases that are largest at the rates ``best[design]``."""

    def areas(pairs):
        return np.array([[-abs(np.log2(rate / top)) for top in best[name]] for name, rate in pairs])

    return areas


def test_grid_grows_until_every_bases_best_is_inside():
    found = search(["a", "b"], [1.0, 2.0, 4.0], peaked({"a": (2.0, 2.0), "b": (32.0, 0.5)}), cell="c")
    assert sorted(found["a"]) == [1.0, 2.0, 4.0]
    assert sorted(found["b"]) == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]
    assert rates_of_bases(found["b"], design="b", cell="c").tolist() == [32.0, 0.5]


def test_a_best_that_is_never_inside_is_refused():
    with pytest.raises(RateAtEdge, match=r"design 'endless' in cell 'c, base 0'.*largest of the grid"):
        search(["endless"], [1.0, 2.0, 4.0], peaked({"endless": (1e9, 1e9)}), cell="c")


@pytest.mark.parametrize("areas, where", [({1.0: 3.0, 2.0: 2.0, 4.0: 1.0}, "least"), ({1.0: 1.0, 2.0: 2.0}, "largest")])
def test_choice_at_an_edge_names_design_cell_and_rate(areas, where):
    rate = max(areas, key=areas.get)
    with pytest.raises(
        RateAtEdge, match=rf"design 'none' in cell 'habit_sgd_8': the best rate {rate:g} is the {where}"
    ):
        best_rate(areas, design="none", cell="habit_sgd_8")


def test_growth_has_an_end():
    calls = []

    def areas(pairs):
        calls.append(pairs)
        return np.array([[rate] for _, rate in pairs])

    with pytest.raises(RateAtEdge):
        search(["a"], [1.0, 2.0, 4.0], areas, cell="c")
    assert sum(map(len, calls)) == MOST_RATES
