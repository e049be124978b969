"""State files: whole or refused, never half written, never silently wrong."""

import hashlib
import json
import os
import signal
import stat
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import AdvantageEstimator
from kaestat.core.storage import (
    decode_keys,
    dump_state,
    encode_keys,
    load_state,
    pack_arrays,
    parse_state,
    save_state,
    unpack_arrays,
    write_atomically,
)

STATE = {"text": "é", "number": 0.1, "far": float("inf"), "none": None, "deep": {"array": np.arange(3), "list": [1]}}


def estimator_with_state() -> AdvantageEstimator:
    estimator = AdvantageEstimator("kae", bandwidth=10)
    for step in range(3):
        estimator.step(["a", "a", 7], [1.0, 0.0, 0.5], step)
    return estimator


def test_what_is_saved_is_loaded(tmp_path):
    save_state(tmp_path / "s", STATE)
    np.testing.assert_equal(load_state(tmp_path / "s"), STATE)


def test_a_file_cut_anywhere_or_with_any_byte_flipped_or_appended_and_a_foreign_one_are_refused(tmp_path):
    path = tmp_path / "state"
    estimator_with_state().save(path)
    content = path.read_bytes()
    changed = [content[:length] for length in [*range(0, len(content), 50), len(content) - 1]]
    for position in [*range(90), *range(90, len(content), 7)]:
        changed.append(content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :])
    for other in (*changed, content + b"\0", b"kaestat-state", b"PK\x03\x04", b"{}", b"\x80\x04N."):
        path.write_bytes(other)
        with pytest.raises(ValueError, match="kaestat"):
            AdvantageEstimator.load(path)


def test_a_checksum_that_was_made_to_fit_hides_nothing():
    first, _, rest = dump_state(STATE).partition(b"\n")
    for other in (b"", b"PK", rest[:-30], rest[:60] + b"\xff" * 8 + rest[68:], rest.replace(b"shape", b"shade")):
        line = b" ".join([*first.split()[:2], hashlib.sha256(other).hexdigest().encode()])
        with pytest.raises(ValueError, match="state: cannot be read"):
            parse_state(line + b"\n" + other, "state")


def test_another_version_a_missing_file_and_another_kind_of_state_are_named(tmp_path):
    with pytest.raises(ValueError, match="state version 2, but this kaestat reads version 1"):
        parse_state(dump_state(STATE).replace(b"kaestat-state 1 ", b"kaestat-state 2 ", 1), "s")
    with pytest.raises(FileNotFoundError):
        AdvantageEstimator.load(tmp_path / "nothing")
    save_state(tmp_path / "other", STATE)
    with pytest.raises(ValueError, match="holds no AdvantageEstimator"):
        AdvantageEstimator.load(tmp_path / "other")


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
    decoded = decode_keys(json.loads(json.dumps(encode_keys(keys))))

    assert decoded == keys
    assert [repr(key) for key in decoded] == [repr(key) for key in keys]


@pytest.mark.parametrize(
    ("key", "plain"),
    [
        (np.int64(-3), -3),
        (np.uint64(2**63), 2**63),
        (np.str_("a"), "a"),
        (np.bool_(True), True),
        (np.float32(0.5), 0.5),
        ((np.int8(1), "a"), (1, "a")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_ids_that_equal_a_plain_value_are_found_again_under_it(key, plain):
    (decoded,) = decode_keys(json.loads(json.dumps(encode_keys([key]))))

    assert decoded == key == plain and hash(decoded) == hash(key)
    assert type(decoded) is type(plain)


def test_ids_that_cannot_be_stored_are_named_and_others_than_encoded_ones_refused():
    with pytest.raises(TypeError, match="frozenset"):
        encode_keys([frozenset({1})])
    for other in ({}, "ab", [{"set": []}], [["a"]], [None]):
        with pytest.raises(ValueError, match="state: "):
            decode_keys(other)


@given(rows=st.integers(0, 3), columns=st.integers(0, 3), kind=st.sampled_from(["<i4", "<f8", "|b1", ">i2"]))
def test_arrays_come_back_writable_in_type_and_shape(rows, columns, kind):
    array = np.arange(rows * columns).reshape(rows, columns).astype(kind)
    state = {"deep": {"array": array, "plain": [1, None]}}
    for back in (unpack_arrays(pack_arrays(state))["deep"], parse_state(dump_state(state), "made up")["deep"]):
        np.testing.assert_array_equal(back["array"], array, strict=True)
        assert back["array"].dtype == array.dtype and back["array"].flags.writeable and back["plain"] == [1, None]


@pytest.mark.parametrize("change", [{"dtype": "|O"}, {"dtype": "<f4"}, {"shape": [2]}, {"__bytes__": b"1"}])
def test_a_corrupted_packed_array_is_refused(change):
    with pytest.raises(ValueError, match="state: cannot be read"):
        unpack_arrays(pack_arrays(np.arange(3.0)) | change)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failure_while_writing_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, failing):
    path = tmp_path / "s"
    write_atomically(path, "old")

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["s"]


KILLED = """
import os, signal, sys
from kaestat.core.storage import write_atomically
os.replace = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
write_atomically(sys.argv[1], b"half")
"""


def test_a_killed_writer_leaves_the_old_file(tmp_path):
    write_atomically(tmp_path / "s", b"old")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "s")], check=False)
    assert killed.returncode == -signal.SIGKILL and (tmp_path / "s").read_bytes() == b"old"


@pytest.mark.parametrize("mode", [None, 0o640, 0o600, 0o444])
def test_folders_are_made_and_a_file_keeps_its_permissions(tmp_path, mode):
    path, plain = tmp_path / "deep" / "er" / "s", tmp_path / "plain"
    plain.write_bytes(b"")
    if mode is not None:
        write_atomically(path, b"old")
        path.chmod(mode)
        plain.chmod(mode)
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new" and path.stat().st_mode == plain.stat().st_mode


def test_a_link_stays_and_its_target_is_written(tmp_path):
    (tmp_path / "link").symlink_to("state")
    for content in ("first", "second"):  # the first finds no target
        write_atomically(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "state").read_text() == content


def test_the_folder_is_flushed_after_the_file_is_in_its_place(tmp_path, monkeypatch):
    flushed, fsync = [], os.fsync

    def seen(handle):
        flushed.append((stat.S_ISDIR(os.fstat(handle).st_mode), (tmp_path / "s").exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", seen)
    write_atomically(tmp_path / "s", b"")
    assert flushed == [(False, False), (True, True)]
