"""Shards appear whole or not at all; torn ones are noticed; a disk that takes nothing is refused first."""

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


def filled(folder, *ranges: tuple[int, int], cell: Cell = CELL) -> Store:
    store = Store(folder)
    for first, last in ranges:
        store.write(Shard(cell, first, last), column(first, last))
    return Store(folder)


def assert_holds(store: Store, replicates: int, shard: int) -> None:
    for name, values in store.read(CELL, replicates, shard).items():
        np.testing.assert_array_equal(values, column(0, replicates)[name])


@given(
    edges=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 15)), max_size=5),
    replicates=st.integers(1, 60),
    shard=st.integers(1, 20),
)
def test_missing_shards_are_just_those_of_the_cut_that_are_not_there(edges, replicates, shard, tmp_path_factory):
    ranges = [(first, first + size) for first, size in edges]
    store = filled(tmp_path_factory.mktemp("run"), *ranges)
    whole = Store(store.folder / "empty").missing(CELL, replicates, shard)
    assert [r for piece in whole for r in range(*piece.range)] == list(range(replicates))
    assert all(len(piece) == shard for piece in whole[:-1])
    missing = store.missing(CELL, replicates, shard)
    assert missing == [piece for piece in whole if piece.range not in ranges]
    for piece in missing:
        store.remember(piece, column(*piece.range))
    assert_holds(store, replicates, shard)


def test_cells_do_not_mix(tmp_path):
    store = filled(tmp_path, (0, 5))
    assert store.missing(CELL, 5, 5) == []
    assert store.missing(OTHER, 5, 5) == [Shard(OTHER, 0, 5)]
    with pytest.raises(ValueError, match=r"cell \(h=0.2, n=8\): replicates 00000000-00000005 are missing"):
        store.read(OTHER, 5, 5)


DAMAGES = {"cut": lambda content: content[: len(content) // 2], "foreign": lambda _: b"PK\x03\x04 not a shard"}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_shard_is_set_aside_and_counts_as_missing(tmp_path, damage):
    filled(tmp_path, (0, 5), (5, 10))
    path = sorted(tmp_path.rglob("*.shard"))[0]
    path.write_bytes(damage(path.read_bytes()))
    store = Store(tmp_path)
    assert store.missing(CELL, 10, 5) == [Shard(CELL, 0, 5)]
    assert store.damaged == [path]
    assert path.with_suffix(".damaged").exists() and not path.exists()
    store.write(Shard(CELL, 0, 5), column(0, 5))
    assert_holds(Store(tmp_path), 10, 5)


def test_shard_in_the_wrong_place_is_not_believed(tmp_path):
    filled(tmp_path, (0, 5))
    path = next(tmp_path.rglob("*.shard"))
    path.rename(path.with_name("00000005-00000010.shard"))
    store = Store(tmp_path)
    assert store.missing(CELL, 10, 5) == [Shard(CELL, 0, 5), Shard(CELL, 5, 10)]
    elsewhere = tmp_path / "shards" / OTHER.key[:16]
    elsewhere.mkdir()
    path.with_name("00000005-00000010.damaged").rename(elsewhere / "00000000-00000005.shard")
    assert store.missing(OTHER, 5, 5) == [Shard(OTHER, 0, 5)]


def test_columns_that_change_between_shards_are_refused(tmp_path):
    store = filled(tmp_path, (0, 5))
    store.write(Shard(CELL, 5, 6), {"c": np.ones(1)})
    with pytest.raises(ValueError, match=r"00000005-00000006 have columns c, those before a\|x, b"):
        Store(tmp_path).read(CELL, 6, 5)


def test_failure_is_forgotten_when_its_replicates_succeed_in_any_cut(tmp_path):
    store = Store(tmp_path)
    for shard in (Shard(CELL, 0, 10), Shard(CELL, 10, 20), Shard(OTHER, 0, 10)):
        store.write_failure(shard, {"error": "x"})
    store.clear_failure(Shard(CELL, 0, 12))
    assert [path.name for path in (tmp_path / "failures").iterdir()] == [f"{OTHER.key[:16]}-00000000-00000010.json"]


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
