"""Ragged samples to rows and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat.core.samples import Packing, Samples


def test_rows_stand_in_order_of_first_appearance_and_samples_in_their_own():
    packing = Packing.of(["b", "a", "b", "c", "b"])

    assert packing.keys == ["b", "a", "c"]
    np.testing.assert_array_equal(packing.pack(np.arange(1.0, 6.0)), [[1, 3, 5], [2, 0, 0], [4, 0, 0]])
    np.testing.assert_array_equal(packing.mask, [[1, 1, 1], [1, 0, 0], [1, 0, 0]])


def test_full_rows_need_no_mask():
    packing = Packing.of(["a", "b", "a", "b"])

    assert packing.mask is None
    np.testing.assert_array_equal(packing.pack(np.arange(4.0)), [[0, 2], [1, 3]])


@given(keys=st.lists(st.sampled_from(["a", 1, ("t", 2), b"x"]), max_size=12))
def test_unpacking_inverts_packing(keys):
    samples, packing = np.arange(float(len(keys))), Packing.of(keys)
    rows = list(dict.fromkeys(keys))

    assert packing.keys == rows and packing.codes.tolist() == [rows.index(key) for key in keys]
    np.testing.assert_array_equal(packing.unpack(packing.pack(samples)), samples)
    assert packing.counts.sum() == len(keys)


def test_samples_of_a_row_that_differ_are_refused_where_one_number_is_asked_for():
    packing = Packing.of(["a", "b", "a"])
    np.testing.assert_array_equal(packing.one_per_row("x", np.array([1.0, 2.0, 1.0])), [1, 2])
    with pytest.raises(ValueError, match="x must be the same"):
        packing.one_per_row("x", np.array([1.0, 2.0, 3.0]))


def test_streams_have_rows_of_their_own_and_masked_samples_none():
    samples = Samples.of(
        ["a", "a", "b", "b"], [1.0, 0.0, np.nan, 1.0], [1, 1, 0, 1], [0, 1, 0, 0], weights=[1, 2, -1, 3]
    )
    assert samples.packing.keys == [("a", 0), ("a", 1), ("b", 0)]
    assert (samples.reward.tolist(), samples.weight.tolist()) == ([1.0, 0.0, 1.0], [1.0, 2.0, 3.0])
    assert samples.given == "weights+stream_ids"
    assert samples.scatter(np.array([5.0, 6.0, 7.0])).tolist() == [5, 6, 0, 7]


def test_weights_are_multiplied_by_squared_ratios():
    given = {"importance": [1.0, 2.0, 0.5], "weights": None}
    assert Samples.of(list("abc"), [0, 0, 0], **given).weight.tolist() == [1.0, 2.0, 0.5]
    assert Samples.of(list("abc"), [0, 0, 0], **given | {"weights": [1.0, 3.0, 4.0]}).weight.tolist() == [1, 12, 1]


@pytest.mark.parametrize(
    ("column", "values"),
    [("rewards", [1e71]), ("rewards", [-np.inf]), ("weights", [-1.0]), ("importance", [np.nan]), ("version", [0.5])],
)
def test_numbers_beyond_the_limits_are_refused_by_name(column, values):
    given = {"prompt_ids": ["a"], "rewards": [1.0]} | {column: values}
    with pytest.raises(ValueError, match=column):
        Samples.of(**given)
    with pytest.raises(ValueError, match="importance"):
        Samples.of(["a"], [1.0], weights=[1e70], importance=[10.0])
