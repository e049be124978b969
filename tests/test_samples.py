"""Ragged samples to rows and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat.samples import CodedIds, Packing


def packed(keys):
    return Packing.of(CodedIds.of(keys))


def test_rows_stand_in_order_of_first_appearance_and_samples_in_their_own():
    packing = packed(["b", "a", "b", "c", "b"])

    assert packing.keys == ["b", "a", "c"]
    np.testing.assert_array_equal(packing.pack(np.arange(1.0, 6.0)), [[1, 3, 5], [2, 0, 0], [4, 0, 0]])
    np.testing.assert_array_equal(packing.mask, [[1, 1, 1], [1, 0, 0], [1, 0, 0]])


def test_full_rows_need_no_mask():
    packing = packed(["a", "b", "a", "b"])

    assert packing.mask is None
    np.testing.assert_array_equal(packing.pack(np.arange(4.0)), [[0, 2], [1, 3]])


def test_samples_of_a_row_keep_their_order_however_many_there_are():
    keys = np.random.default_rng(0).integers(0, 5, 5000).tolist()
    packing = packed(keys)
    rows = packing.pack(np.arange(5000.0))

    assert all((np.diff(row[present]) > 0).all() for row, present in zip(rows, packing.mask, strict=True))


@given(keys=st.lists(st.sampled_from(["a", 1, ("t", 2), b"x"]), max_size=12))
def test_unpacking_inverts_packing(keys):
    samples = np.arange(float(len(keys)))
    packing = packed(keys)

    np.testing.assert_array_equal(packing.unpack(packing.pack(samples)), samples)
    assert packing.counts.sum() == len(keys)


def test_nothing_packs_to_nothing():
    packing = packed([])

    assert packing.pack(np.zeros(0)).shape == (0, 0)
    assert packing.unpack(packing.pack(np.zeros(0))).shape == (0,)


def test_unhashable_keys_are_a_type_error():
    with pytest.raises(TypeError):
        packed([["a"], ["b"]])
