"""What is written beside its place: links, permissions, and what killed writers leave."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest

from kaestat import AdvantageEstimator
from kaestat.core import temporary_files
from kaestat.core.storage import write_atomically
from kaestat.report.out_folder import replace_files

fcntl = pytest.importorskip("fcntl")

KILLED = """
import os, signal, sys
from pathlib import Path
from kaestat.core.storage import write_atomically
from kaestat.report.out_folder import replace_files
def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)
os.replace = die
if sys.argv[2] == "file":
    write_atomically(Path(sys.argv[1]) / "state", b"half")
def write(folder):
    (folder / "report.html").write_text("half")
    die()
replace_files(Path(sys.argv[1]), write)
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_writer_leaves_is_removed_by_the_next_write_of_any_name(tmp_path, kind):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), kind], check=False)
    (left,) = os.listdir(tmp_path)
    assert killed.returncode == -signal.SIGKILL and left.endswith(".kaestat.tmp")

    write_atomically(tmp_path / "another", b"whole")
    assert os.listdir(tmp_path) == ["another"]


def test_what_a_killed_command_leaves_is_removed_by_the_next_command(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), "folder"], check=False)

    def write(folder):
        (folder / "report.html").write_text("whole")
        return [folder / "report.html"]

    replace_files(tmp_path, write)
    assert sorted(os.listdir(tmp_path)) == [".kaestat-manifest.json", "report.html"]


def test_what_a_live_writer_is_making_stays(tmp_path):
    with temporary_files.new_file(tmp_path / "s", 0o666) as (mine, _), temporary_files.new_folder(tmp_path, "f") as too:
        write_atomically(tmp_path / "another", b"")
        assert mine.exists() and too.is_dir()
    assert os.listdir(tmp_path) == ["another"]


def test_a_file_that_is_removed_before_its_lock_is_there_is_made_again(tmp_path, monkeypatch):
    flock, first = fcntl.flock, []

    def robbed(handle, operation):
        if not first:
            first.append(operation)
            temporary_files.remove_left(tmp_path)
        flock(handle, operation)

    monkeypatch.setattr(temporary_files.fcntl, "flock", robbed)
    write_atomically(tmp_path / "s", b"whole")
    assert first and (tmp_path / "s").read_bytes() == b"whole" and os.listdir(tmp_path) == ["s"]


def test_where_the_file_system_has_no_locks_files_are_written_and_nothing_is_removed(tmp_path, monkeypatch):
    def none(handle, operation):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(temporary_files.fcntl, "flock", none)
    left = tmp_path / ".s.0123456789abcdef.kaestat.tmp"
    left.write_bytes(b"of another machine, alive or dead")
    write_atomically(tmp_path / "s", b"whole")
    assert sorted(os.listdir(tmp_path)) == [left.name, "s"]


def test_files_of_others_with_names_alike_stay(tmp_path):
    names = [".s.tmp", ".s.0123456789abcdef.tmp", "s.0123456789abcdef.kaestat.tmp", ".s.0123.kaestat.tmp"]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    write_atomically(tmp_path / "s", b"")
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "s"])


def test_many_writers_of_one_path_leave_one_whole_file(tmp_path):
    failed = []

    def write(number):
        try:
            for _ in range(20):
                write_atomically(tmp_path / "s", bytes([number]) * 1000)
        except Exception as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not failed and os.listdir(tmp_path) == ["s"]
    assert len(set((tmp_path / "s").read_bytes())) == 1


@pytest.mark.parametrize("mode", [0o640, 0o600, 0o444, 0o666])
def test_a_file_keeps_its_permissions(tmp_path, mode):
    (tmp_path / "s").write_bytes(b"old")
    (tmp_path / "s").chmod(mode)
    write_atomically(tmp_path / "s", b"new")
    assert (tmp_path / "s").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == mode


def test_a_group_that_cannot_be_kept_gets_no_permissions(tmp_path, monkeypatch):
    path = tmp_path / "s"
    path.write_bytes(b"old")
    path.chmod(0o660)
    real = os.fstat

    def of_another_group(handle):
        found = real(handle)
        return os.stat_result([*found[:5], found.st_gid + 1, *found[6:10]])

    def refused(*arguments):
        raise PermissionError

    monkeypatch.setattr(os, "fstat", of_another_group)
    monkeypatch.setattr(os, "fchown", refused)
    write_atomically(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_stays_and_its_target_is_written(tmp_path):
    estimator = AdvantageEstimator("kae", bandwidth=10)
    (tmp_path / "deep").mkdir()
    (tmp_path / "link").symlink_to("deep/link")
    (tmp_path / "deep" / "link").symlink_to("../state")
    for _ in range(2):  # the first finds no target
        estimator.save(tmp_path / "link")
        assert (tmp_path / "link").is_symlink() and (tmp_path / "deep" / "link").is_symlink()
        assert not (tmp_path / "state").is_symlink()
        AdvantageEstimator.load(tmp_path / "state")


def test_links_in_a_circle_are_an_error(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError) as raised:
        write_atomically(tmp_path / "a", b"")
    assert raised.value.errno == errno.ELOOP


def test_the_folder_is_flushed_after_the_file_is_in_its_place(tmp_path, monkeypatch):
    flushed, fsync = [], os.fsync

    def seen(handle):
        flushed.append((stat.S_ISDIR(os.fstat(handle).st_mode), (tmp_path / "s").exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", seen)
    write_atomically(tmp_path / "s", b"")
    assert flushed == [(False, False), (True, True)]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_a_folder_that_cannot_be_flushed_is_no_error_but_a_broken_disk_is(tmp_path, monkeypatch, code):
    fsync = os.fsync

    def not_folders(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(code, "no flush of folders")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", not_folders)
    with pytest.raises(OSError) if code == errno.EIO else nullcontext():
        write_atomically(tmp_path / "s", b"whole")
    assert (tmp_path / "s").read_bytes() == b"whole"
