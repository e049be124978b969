"""Shards appear whole or not at all; torn ones count as missing; a disk that takes nothing is refused first."""

import errno
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulations.harness import Cell, Shard, Store

CELL = Cell({"h": 0.1, "n": 8})
OTHER = Cell({"h": 0.2, "n": 8})


def column(first: int, last: int) -> dict[str, np.ndarray]:
    return {"a|x": np.arange(first, last) + 0.5, "b": -np.arange(first, last, dtype=float)}


def filled(folder, *ranges: tuple[int, int]) -> Store:
    store = Store(folder)
    for first, last in ranges:
        store.write(Shard(CELL, first, last), column(first, last))
    return store


@given(
    edges=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 15)), max_size=5),
    replicates=st.integers(1, 60),
    size=st.integers(1, 20),
)
def test_missing_shards_are_just_those_of_the_cut_that_are_not_there(edges, replicates, size, tmp_path_factory):
    ranges = [(first, first + length) for first, length in edges]
    store = filled(tmp_path_factory.mktemp("run"), *ranges)
    whole = Store(store.folder / "empty").missing(CELL, replicates, size)
    assert [r for shard in whole for r in range(shard.first, shard.last)] == list(range(replicates))
    assert all(len(shard) == size for shard in whole[:-1])
    missing = store.missing(CELL, replicates, size)
    assert missing == [shard for shard in whole if (shard.first, shard.last) not in ranges]
    for shard in missing:
        store.write(shard, column(shard.first, shard.last))
    for name, values in store.read(CELL, replicates, size).items():
        np.testing.assert_array_equal(values, column(0, replicates)[name])


def test_cells_do_not_mix(tmp_path):
    store = filled(tmp_path, (0, 5))
    assert store.missing(CELL, 5, 5) == []
    assert store.missing(OTHER, 5, 5) == [Shard(OTHER, 0, 5)]
    with pytest.raises(ValueError, match=r"cell \(h=0.2, n=8\): replicates 00000000-00000005 are missing"):
        store.read(OTHER, 5, 5)


@pytest.mark.parametrize("damage", [lambda content: content[: len(content) // 2], lambda _: b"PK\x03\x04 not a shard"])
def test_torn_shard_counts_as_missing(tmp_path, damage):
    store = filled(tmp_path, (0, 5), (5, 10))
    path = min(tmp_path.rglob("*.shard"))
    path.write_bytes(damage(path.read_bytes()))
    assert store.missing(CELL, 10, 5) == [Shard(CELL, 0, 5)]


def test_shard_in_the_wrong_place_is_not_believed(tmp_path):
    store = filled(tmp_path, (0, 5))
    (path,) = tmp_path.rglob("*.shard")
    elsewhere = tmp_path / "shards" / OTHER.key[:16] / path.name
    elsewhere.parent.mkdir()
    for place in (path.with_name("00000005-00000010.shard"), elsewhere):
        place.write_bytes(path.read_bytes())
    assert store.missing(CELL, 10, 5) == [Shard(CELL, 5, 10)] and store.missing(OTHER, 5, 5) == [Shard(OTHER, 0, 5)]


def test_columns_that_change_between_shards_are_refused(tmp_path):
    store = filled(tmp_path, (0, 5))
    store.write(Shard(CELL, 5, 6), {"c": np.ones(1)})
    with pytest.raises(ValueError, match=r"00000005-00000006 have columns c, those before a\|x, b"):
        store.read(CELL, 6, 5)


def test_check_leaves_nothing_behind(tmp_path):
    Store(tmp_path / "new" / "run").check_writable()
    assert list((tmp_path / "new" / "run").iterdir()) == []


def test_full_disk_is_refused_and_named(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    store = Store(tmp_path)
    for write in (store.check_writable, lambda: store.write(Shard(CELL, 0, 5), column(0, 5))):
        with pytest.raises(OSError, match=r"cannot write results to .*: No space left on device"):
            write()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [], "half-written files stay on the full disk"
