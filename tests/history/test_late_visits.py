"""Small steps on the way of late visits, by hand."""

import numpy as np

from kaestat import Visits
from kaestat.history.late_visits import hidden, in_rounds, named, newest_of


def test_no_turn_has_two_visits_of_a_row_and_a_row_s_come_in_order():
    row, step = np.array([3, 1, 3, 1, 2, 3]), np.array([9, 4, 2, 1, 0, 5])
    found = list(in_rounds(row, step))
    assert sorted(np.concatenate(found).tolist()) == list(range(6)) and len(found) == 3
    assert all(len(set(row[turn].tolist())) == len(turn) for turn in found)
    in_order = [step[turn][row[turn] == 3].tolist() for turn in found]
    assert in_order == [[2], [5], [9]]
    assert [turn.tolist() for turn in in_rounds(np.array([2, 1]), np.array([0, 0]))] == [[0, 1]]


def test_hidden_visits_are_padding_and_nothing_hidden_is_the_same_object():
    lag, count = np.array([[4.0, 2.0, 1.0]]), np.array([[1.0, 2.0, 0.0]])
    visits = Visits(lag=lag, count=count, total=count * 0.5, total_sq=count * 0.5)
    assert hidden(visits, np.array([[True, True, False]])) is visits
    rest = hidden(visits, ~named(lag, np.array([0, 0]), np.array([2, 7])))
    assert rest.count.tolist() == [[1.0, 0.0, 0.0]] and rest.total.tolist() == [[0.5, 0.0, 0.0]]
    assert rest.lag.tolist() == [[4.0, 0.0, 1.0]]


def test_the_newest_of_those_chosen_are_the_last_of_each_row():
    chosen = np.array([[True, True, False, True], [False, True, False, False]])
    assert newest_of(chosen, 2).tolist() == [[False, True, False, True], [False, True, False, False]]
    assert newest_of(chosen, 1).tolist() == [[False, False, False, True], [False, True, False, False]]
