"""Ragged samples to rows and back."""

from array import array

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat.core.samples import CodedIds, Packing, Samples, StepSamples


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


def numbered(ids):
    """Keys in order of first appearance and the number of each id, one by one."""
    keys = list(dict.fromkeys(ids))
    return keys, [keys.index(key) for key in ids]


@given(
    ids=st.lists(st.integers(-4, 4), max_size=40),
    times=st.integers(1, 40),
    scale=st.sampled_from([1, 10**6, 10**17]),
    dtype=st.sampled_from([np.int64, np.int8, np.uint64, object]),
    order=st.sampled_from(["grouped", "repeated"]),
)
def test_ids_in_arrays_are_numbered_as_they_would_be_one_by_one(ids, times, scale, dtype, order):
    scale, shift = (1 if dtype == np.int8 else scale), (2**63 if dtype == np.uint64 else 0)
    column = np.array([key * scale + shift for key in ids], dtype=dtype)
    column = np.repeat(column, times) if order == "grouped" else np.tile(column, times)
    coded = CodedIds.of(column.tolist())

    keys, codes = numbered(column.tolist())
    assert coded.keys == keys and all(type(key) is int for key in coded.keys)
    assert coded.codes.tolist() == codes
    packing = Packing.of(coded)
    assert packing.counts.tolist() == [codes.count(row) for row in range(len(keys))]
    assert (packing.order is None) == (codes == sorted(codes))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_the_whole_range_of_an_integer_type_is_numbered(dtype):
    info = np.iinfo(dtype)
    for ids in ([info.min, 0, 1, info.max], [info.max - 227, info.max - 147, info.max - 92, info.max - 27]):
        column = np.random.default_rng(0).permutation(np.repeat(np.array(ids, dtype=dtype), 50))
        coded = CodedIds.of(column)
        assert (coded.keys, coded.codes.tolist()) == numbered(column.tolist())


@given(pairs=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=200))
def test_pairs_are_numbered_as_tuples_would_be(pairs):
    first, second = (CodedIds.of(list(column)) for column in (zip(*pairs, strict=True) if pairs else ([], [])))
    coded = first.paired(second)

    assert (coded.keys, coded.codes.tolist()) == numbered(pairs)


class Odd:
    """An object whose comparison cannot be asked for a truth value."""

    def __eq__(self, other):
        raise ValueError("no truth value")

    __hash__ = object.__hash__


def test_objects_that_cannot_be_compared_are_numbered_by_identity():
    ids = np.array([Odd(), Odd()] * 100, dtype=object)
    assert CodedIds.of(ids).codes.tolist() == [0, 1] * 100
    assert CodedIds.of(np.repeat(ids[:2], 100)).codes.tolist() == [0] * 100 + [1] * 100


def test_samples_of_a_row_that_differ_are_refused_where_one_number_is_asked_for():
    packing = packed(["a", "b", "a"])
    np.testing.assert_array_equal(packing.one_per_row("x", np.array([1.0, 2.0, 1.0])), [1, 2])
    with pytest.raises(ValueError, match="x must be the same"):
        packing.one_per_row("x", np.array([1.0, 2.0, 3.0]))


GIVEN = {
    "prompt_ids": ["a", "a", "b"],
    "rewards": np.array([1.0, 0.0, 1.0]),
    "mask": [True, True, True],
    "stream_ids": [0, 0, 0],
    "weights": [1.0, 2.0, 3.0],
    "importance": [1.0, 1.0, 1.0],
    "divergence": [0.1, 0.1, 0.2],
    "version": [3, 3, 3],
}
OTHERS = {
    "prompt_ids": ["a", "b", "b"],
    "rewards": [1.0, 0.0, 0.0],
    "mask": [True, True, False],
    "stream_ids": [0, 1, 0],
    "weights": [1.0, 2.0, 4.0],
    "importance": [1.0, 1.0, 2.0],
    "divergence": [0.1, 0.1, 0.3],
    "version": [3, 3, 2],
}


def samples_of(**given) -> StepSamples:
    return StepSamples.of(Samples(**GIVEN | given), by_stream=True)


@pytest.mark.parametrize("name", GIVEN)
def test_samples_are_the_same_as_those_that_differ_in_nothing(name):
    samples = samples_of()
    assert samples.same_as(samples_of())
    assert not samples.same_as(samples_of(**{name: OTHERS[name]}))
    if name not in ("prompt_ids", "rewards", "mask"):  # a mask that keeps all is none
        assert not samples.same_as(samples_of(**{name: None}))


@pytest.mark.parametrize("kind", ["numpy", "memory", "pandas", "torch"])
def test_samples_stay_when_the_users_numbers_change(kind):
    kept = np.array([[1.0, 0.0, 1.0], [1.0, 2.0, 3.0]])
    if kind == "torch":
        numbers = pytest.importorskip("torch").tensor(kept)
    else:
        numbers = [
            {"numpy": np.array, "memory": lambda row: array("d", row), "pandas": pd.Series}[kind](r) for r in kept
        ]
    rewards, weights = numbers
    samples = StepSamples.of(Samples(["a", "a", "b"], rewards, weights=weights), by_stream=True)
    for k in range(3):
        rewards[k], weights[k] = 0.5, 0.5
    assert (samples.reward.tolist(), samples.weight.tolist()) == ([1.0, 0.0, 1.0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize("every", [1, 2])
def test_runs_of_equal_ids_are_found_whether_or_not_they_are_one_object(every):
    """Two of three samples share their prompt's string, the third has one of its own; a slice has gaps."""
    names, one = [f"prompt {number}" for number in (3, 3, 1, 1, 1, 2, 3, 3) for _ in range(20)], {}
    shared = [one.setdefault(name, name) if k % 3 else name for k, name in enumerate(names)]
    ids = np.array([each for name in shared for each in (name, *["other"] * (every - 1))], dtype=object)[::every]
    coded = CodedIds.of(ids)
    assert coded.keys == ["prompt 3", "prompt 1", "prompt 2"]
    assert [coded.keys[code] for code in coded.codes] == names
