"""State files: whole or refused, never half written, never silently wrong."""

import hashlib
import io
import json
import os
import struct
import tracemalloc
from enum import IntEnum, StrEnum
from zipfile import ZipFile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import AdvantageEstimator, RewardHistory
from kaestat.core import storage
from kaestat.core.storage import (
    decode_keys,
    encode_keys,
    load_state,
    pack_arrays,
    parse_state,
    save_state,
    unpack_arrays,
    write_atomically,
)

STATE = {
    "text": "é",
    "number": 0.1,
    "far": float("inf"),
    "none": None,
    "deep": {"array": np.arange(3), "list": [1, "a"]},
}


def estimator_with_state() -> AdvantageEstimator:
    estimator = AdvantageEstimator("kae", bandwidth=10)
    for step in range(3):
        estimator.step(["a", "a", 7], [1.0, 0.0, 0.5], step)
    return estimator


def test_what_is_saved_is_loaded(tmp_path):
    save_state(tmp_path / "s", STATE)
    loaded = load_state(tmp_path / "s")

    np.testing.assert_array_equal(loaded["deep"].pop("array"), STATE["deep"]["array"])
    assert loaded == {**STATE, "deep": {"list": [1, "a"]}}


def test_a_file_cut_anywhere_is_refused(tmp_path):
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    estimator_with_state().save(whole)
    content = whole.read_bytes()

    for length in [*range(0, len(content), 50), len(content) - 1]:
        torn.write_bytes(content[:length])
        with pytest.raises(ValueError, match="kaestat state file"):
            AdvantageEstimator.load(torn)


def test_a_file_with_any_byte_flipped_or_appended_is_refused(tmp_path):
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    estimator_with_state().save(whole)
    content = whole.read_bytes()

    for position in [*range(90), *range(90, len(content), 7)]:
        flipped = bytearray(content)
        flipped[position] ^= 0x10
        torn.write_bytes(flipped)
        with pytest.raises(ValueError, match="kaestat"):
            AdvantageEstimator.load(torn)
    torn.write_bytes(content + b"\0")
    with pytest.raises(ValueError, match="cut short or altered"):
        AdvantageEstimator.load(torn)


@pytest.mark.parametrize("content", [b"", b"kaestat-state", b"PK\x03\x04", b"{}", b"\x80\x04N."])
def test_foreign_files_are_refused(tmp_path, content):
    (tmp_path / "s").write_bytes(content)
    with pytest.raises(ValueError, match="not a kaestat state file"):
        load_state(tmp_path / "s")


def test_another_version_is_named(tmp_path):
    save_state(tmp_path / "s", STATE)
    content = (tmp_path / "s").read_bytes()
    (tmp_path / "s").write_bytes(content.replace(b"kaestat-state 1 ", b"kaestat-state 2 ", 1))
    with pytest.raises(ValueError, match="state version 2, but this kaestat reads version 1"):
        load_state(tmp_path / "s")


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        AdvantageEstimator.load(tmp_path / "nothing")


def test_a_history_is_no_estimator_and_the_other_way_round(tmp_path):
    RewardHistory().save(tmp_path / "history")
    estimator_with_state().save(tmp_path / "estimator")
    with pytest.raises(ValueError, match="holds no AdvantageEstimator"):
        AdvantageEstimator.load(tmp_path / "history")
    with pytest.raises(ValueError, match="holds no reward history"):
        RewardHistory.load(tmp_path / "estimator")


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failure_while_writing_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, failing):
    path = tmp_path / "s"
    write_atomically(path, "old")

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["s"]


def test_folders_are_made_and_permissions_are_the_usual_ones(tmp_path):
    write_atomically(tmp_path / "deep" / "er" / "s", b"new")
    (tmp_path / "plain").write_bytes(b"")

    assert (tmp_path / "deep" / "er" / "s").read_bytes() == b"new"
    assert (tmp_path / "deep" / "er" / "s").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("value", [object(), np.array([object()]), {1, 2}, lambda: None])
def test_what_needs_pickle_is_refused_before_anything_is_written(tmp_path, value):
    with pytest.raises(TypeError):
        save_state(tmp_path / "s", {"value": value})
    assert os.listdir(tmp_path) == []


KEYS = st.recursive(
    st.text(max_size=4)
    | st.integers()
    | st.binary(max_size=4)
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.none(),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)


@given(keys=st.lists(KEYS, max_size=6))
def test_ids_of_every_kind_come_back_equal_and_of_their_type_even_through_json(keys):
    encoded = encode_keys(keys)
    if not isinstance(encoded, np.ndarray):
        encoded = json.loads(json.dumps(encoded))
    decoded = decode_keys(encoded)

    assert decoded == keys
    assert [repr(key) for key in decoded] == [repr(key) for key in keys]


class Colour(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    ("key", "plain"),
    [
        (np.int64(-3), -3),
        (np.uint64(2**63), 2**63),
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), b"a"),
        (np.bool_(True), True),
        (np.float32(0.5), 0.5),
        (10**5000, 10**5000),
        (Colour.RED, "red"),
        (Number.ONE, 1),
        ((np.int8(1), "a"), (1, "a")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_ids_that_equal_a_plain_value_are_found_again_under_it(key, plain):
    (decoded,) = decode_keys(json.loads(json.dumps(encode_keys([key]))))

    assert decoded == key == plain and hash(decoded) == hash(key)
    assert type(decoded) is type(plain)


def test_ids_that_cannot_be_stored_are_named():
    with pytest.raises(TypeError, match="frozenset"):
        encode_keys([frozenset({1})])


@pytest.mark.parametrize("odd", ["", "\ud800", "\r\x0b\x85\u2028", "\0", "a\nb", "\n", "\U0001f600"])
def test_many_strings_come_back_whatever_is_in_them(odd, tmp_path):
    keys = [f"train/{n}" for n in range(5000)] + [odd]
    encoded = encode_keys(keys)
    save_state(tmp_path / "s", {"keys": encoded})

    assert isinstance(encoded, list) == ("\n" in odd)
    for stored in (load_state(tmp_path / "s")["keys"], unpack_arrays(pack_arrays(encoded))):
        assert decode_keys(stored) == keys


@pytest.mark.parametrize("altered", [{}, {"lines": "a"}, {"lines": np.array([0xFF], dtype=np.uint8)}])
def test_altered_lines_of_ids_are_refused(altered):
    with pytest.raises(ValueError, match="state: cannot be read"):
        decode_keys(altered)


def test_integers_become_one_array():
    assert encode_keys([-(2**63), 2**63 - 1]).dtype == np.int64


@given(rows=st.integers(0, 3), columns=st.integers(0, 3), kind=st.sampled_from(["<i4", "<f8", "|b1"]))
def test_packed_arrays_come_back_writable_in_type_and_shape(rows, columns, kind):
    array = np.arange(rows * columns).reshape(rows, columns).astype(kind)
    back = unpack_arrays(pack_arrays({"deep": {"array": array, "plain": [1, None]}}))["deep"]

    np.testing.assert_array_equal(back["array"], array)
    assert back["array"].dtype == array.dtype and back["array"].flags.writeable and back["plain"] == [1, None]


def test_a_checksum_that_was_made_to_fit_hides_nothing(tmp_path):
    save_state(tmp_path / "whole", STATE)
    first, _, rest = (tmp_path / "whole").read_bytes().partition(b"\n")
    for altered in (b"", b"PK", rest[:-30], rest[:60] + b"\xff" * 8 + rest[68:], rest.replace(b"header", b"readeh")):
        line = b" ".join([*first.split()[:2], hashlib.sha256(altered).hexdigest().encode()])
        (tmp_path / "altered").write_bytes(line + b"\n" + altered)
        with pytest.raises(ValueError, match="altered"):
            load_state(tmp_path / "altered")


def altered(path, build):
    """A state file around an archive of one's own, with the checksum that belongs to it."""
    buffer = io.BytesIO()
    header = np.frombuffer(b'{"a": {"__array__": "array0"}}', dtype=np.uint8)
    build(buffer, header)
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    path.write_bytes(storage._first_line(digest) + buffer.getvalue())
    return path


def test_a_compressed_state_is_refused_before_it_is_expanded(tmp_path):
    def build(buffer, header):
        np.savez_compressed(buffer, header=header, array0=np.zeros(2_000_000))

    path = altered(tmp_path / "state", build)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"claim 16,000,\d+ bytes, and the file has"):
            load_state(path)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def with_array(path, descr, shape, content):
    """An altered state whose array claims a type and a shape."""

    def build(buffer, header):
        np.savez(buffer, header=header)
        member = io.BytesIO()
        np.lib.format.write_array_header_1_0(member, {"descr": descr, "fortran_order": False, "shape": shape})
        with ZipFile(buffer, "a") as archive:
            archive.writestr("array0.npy", member.getvalue() + content)

    return altered(path, build)


@pytest.mark.parametrize("shape", [(650_000_000,), (10**15,), (0, 10**9), (3,)])
def test_an_array_that_claims_another_size_than_it_has_is_refused(tmp_path, shape):
    with pytest.raises(ValueError, match=r"array0\.npy claims [\d,]+ bytes and has 8"):
        load_state(with_array(tmp_path / "state", "<f8", shape, b"\0" * 8))


@pytest.mark.parametrize("array", [np.arange(6).reshape(2, 3).T, np.array(2.0, "<f4"), np.zeros((0, 3), ">i2")])
def test_arrays_come_back_writable_in_type_shape_and_order(array):
    back = parse_state(storage.dump_state({"a": array}), "made up")["a"]
    np.testing.assert_array_equal(back, array, strict=True)
    assert back.dtype == array.dtype and back.flags.writeable and back.flags.f_contiguous == array.flags.f_contiguous


def test_an_array_that_goes_beyond_the_end_of_the_file_is_refused(tmp_path):
    """Its numbers would be whatever was in memory: checksum and claim fit."""

    def build(buffer, header):
        np.savez(buffer, header=header, array0=np.zeros(1000))
        content = buffer.getvalue()
        with ZipFile(buffer, "a") as archive:
            start = archive.getinfo("array0.npy").header_offset
            archive.comment = content[start : start + 300]  # the member once more, without most of its numbers
        content = bytearray(buffer.getvalue())
        struct.pack_into("<L", content, content.rindex(b"PK\x01\x02") + 42, len(content) - 300)
        buffer.seek(0)
        buffer.write(content)

    with pytest.raises(ValueError, match=r"array0\.npy goes beyond the end of the file"):
        load_state(altered(tmp_path / "state", build))


@pytest.mark.parametrize("descr", ["|O", [("number", "<f8"), ("object", "|O")]])
def test_bytes_of_a_file_are_never_taken_for_objects(tmp_path, descr):
    with pytest.raises(ValueError, match="altered"):
        load_state(with_array(tmp_path / "state", descr, (1,), b"\x10" * np.dtype(descr).itemsize))


def test_a_compressed_member_is_refused_however_small(tmp_path):
    def build(buffer, header):
        np.savez_compressed(buffer, header=header, array0=np.random.default_rng(0).random(100))

    with pytest.raises(ValueError, match=r"is compressed, which states are not|claim"):
        load_state(altered(tmp_path / "state", build))


def test_an_array_without_numbers_may_not_claim_any_size():
    """A state of 2 kB made `load` take 1.1 GB: rows of 300 million numbers, none of them there."""
    estimator = estimator_with_state()
    for shape in ((0, 300_000_000), (300_000_000, 0), (0, 2**20, 2)):
        content = estimator.content()
        history = content["state"]["history"]
        history["keys"] = []
        history["fields"] = {name: field[:0] for name, field in history["fields"].items()}
        history["state"] = np.zeros(shape, dtype=np.float32)
        tracemalloc.start()
        try:
            with pytest.raises(ValueError, match="an array without numbers claims the shape"):
                AdvantageEstimator.of_content(parse_state(storage.dump_state(content), "made up"), "made up")
            with pytest.raises(ValueError, match="an array without numbers claims the shape"):
                estimator.load_state_dict(pack_arrays(content["state"]))
            assert tracemalloc.get_traced_memory()[1] < 4_000_000
        finally:
            tracemalloc.stop()


def test_a_history_without_prompts_may_claim_any_width():
    state = RewardHistory(10.0).state_dict()
    state["fields"] = {name: np.zeros((0, 10**12), dtype=field.dtype) for name, field in state["fields"].items()}
    assert len(RewardHistory.from_state_dict(state)) == 0
