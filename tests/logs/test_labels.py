"""Coded columns against plain lists."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kaestat.logs.labels import Labels

COLUMNS = st.lists(st.sampled_from(["a", "b", "", 1, 1.0, True, 0, (1, 2), b"x"]), max_size=30)


def check(labels: Labels, expected: list) -> None:
    assert [labels[k] for k in range(len(labels))] == expected
    assert labels.distinct == list(dict.fromkeys(expected))
    assert labels.codes.dtype == np.int32


@given(COLUMNS)
def test_labels_are_the_column_in_order_of_first_appearance(column):
    check(Labels.of(column), column)


@given(COLUMNS, st.randoms())
def test_columns_coded_elsewhere_may_have_equal_unused_and_unordered_values(column, random):
    values = [*column, *column, "unused", 1.0]
    random.shuffle(values)
    places = {k: [place for place, value in enumerate(values) if value == entry] for k, entry in enumerate(column)}
    codes = np.array([random.choice(places[k]) for k in range(len(column))], dtype=np.int64)
    check(Labels.of_coded(codes, values), column)


@given(st.lists(COLUMNS, min_size=1, max_size=4))
def test_parts_are_joined_and_entries_taken(parts):
    joined = Labels.joined([Labels.of(part) for part in parts])
    column = [entry for part in parts for entry in part]
    check(joined, column)
    kept = np.arange(len(column)) % 3 == 1
    check(joined.take(kept), column[1::3])
