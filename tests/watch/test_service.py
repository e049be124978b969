"""``watch`` as a service: a day of faults on a simulated clock ends equal to `analyze` of the same valid rows."""

import errno
import json
import os
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from kaestat import read_log, value_risk
from kaestat.report import follower as service
from kaestat.report.follower import STATE, Follower
from kaestat.watch import rollout_folder, valid_rows

METHODS = ["kae:bandwidth=5", "kae_eb:bandwidth=5"]
STEP_EVERY = 20 * 60.0  # seconds of the simulated day
LOOK_EVERY = 5 * 60.0
DAY = 24 * 3600.0


class FullDisk:
    """Writes fail while it is on: of the watch's files, of its temporary ones, or of both."""

    def __init__(self, monkeypatch):
        self.on = set()
        for name in ("write_atomically", "save_state"):
            monkeypatch.setattr(service, name, self.unless("out", getattr(service, name)))
        parsed = valid_rows.TextRows.parsed
        monkeypatch.setattr(valid_rows.TextRows, "parsed", self.unless("temporary", parsed))
        monkeypatch.setattr(rollout_folder, "read_together", self.unless("temporary", rollout_folder.read_together))

    def unless(self, where: str, write: Callable) -> Callable:
        def call(*arguments, **keywords):
            if where in self.on:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(*arguments, **keywords)

        return call


def rows_of_step(step, rng):
    prompts = [f'p{k}, "the\n{k}th"' if k % 7 == 0 else f"p{k}" for k in rng.permutation(30)[:12]]
    return [(prompt, step, float(rng.random() < 0.4)) for prompt in prompts for _ in range(3)]


def csv_lines(rows):
    return [pd.DataFrame([row]).to_csv(index=False, header=False) for row in rows]


def jsonl_lines(rows):
    return [json.dumps({"input": p, "output": "so", "score": r, "step": s}) + "\n" for p, s, r in rows]


BAD_CSV = ["p1,{step},nan\n", "p1,{step},1,2,3\n", ",{step},1\n", "p1,soon,1\n", "\x00\x01garbage\n", "p1\n"]
BAD_JSONL = [
    '{{"input": "p1"}}\n',
    "garbage}}\n",
    '{{"input": "p1", "output": "", "score": "NaN", "step": {step}}}\n',
    "[1]\n",
]


class Day:
    """A run that writes a step every 20 minutes, looked at every 5, with a fault at two looks of five."""

    def __init__(self, tmp_path, disk):
        self.now, self.disk, self.rng = 0.0, disk, np.random.default_rng(0)
        self.run, self.out, self.clean = tmp_path / "run", tmp_path / "out", []
        self.bad, self.told, self.restarts = 0, set(), 0

    def follow(self):
        watch = Follower(self.run, "auto", {}, METHODS, self.out, "kaestat watch", clock=lambda: self.now)
        watch.resume()
        return watch

    def live(self, write, faults):
        """Play the day; returns the follower at its end."""
        watch, step = self.follow(), 0
        while self.now < DAY:
            if self.now >= step * STEP_EVERY:
                write(self, step)
                step += 1
            undo = faults[int(self.rng.integers(len(faults)))](self) if self.rng.random() < 0.4 else None
            watch.look()
            self.told.add(watch.waiting.split(":")[-1].split("(")[0].strip()[:40])
            if undo is not None:
                undo()
            if self.rng.random() < 0.05:  # killed, and started again
                self.restarts += 1
                watch = self.follow()
            self.now += LOOK_EVERY
        watch.look(last=True)
        watch.finish()
        return watch


def disk_full(where):
    def fault(day):
        day.disk.on = where
        return lambda: setattr(day.disk, "on", set())

    return fault


def log_vanishes(day):
    away = day.run.with_name("away")
    if not day.run.exists():
        return None
    os.rename(day.run, away)
    return lambda: os.rename(away, day.run)


def log_is_a_link_to_nothing(day):
    undo = log_vanishes(day)
    if undo is None:
        return None
    day.run.symlink_to("nowhere")

    def back():
        day.run.unlink()
        undo()

    return back


FAULTS = [
    disk_full({"out"}),
    disk_full({"temporary"}),
    disk_full({"out", "temporary"}),
    log_vanishes,
    log_is_a_link_to_nothing,
]


def check(day, watch, expected_file):
    """The figures are those of `analyze` of the valid rows, and all that is bad has been counted."""
    frame = pd.DataFrame(day.clean, columns=["prompt", "step", "reward"])
    frame.to_csv(expected_file, index=False)
    risk = value_risk(read_log(expected_file), [*METHODS, "grpo"], n_boot=0).set_index("method")
    summary = watch.summary()
    assert summary.n_completions == len(day.clean) and summary.late == 0
    assert summary.n_steps == frame["step"].nunique()
    for row in summary.methods:
        if row.method in risk.index:
            assert row.error == pytest.approx(risk.loc[row.method, "mse"], abs=1e-12)
    document = json.loads((day.out / "watch.json").read_text())
    assert document["summary"]["n_completions"] == len(day.clean)
    assert watch._left.rows == day.bad
    assert any(text.startswith(f"{day.bad} rows left out, first at ") for text in document["summary"]["told"])
    assert day.restarts > 5 and len(day.told) > 3


@pytest.fixture
def day(tmp_path, monkeypatch):
    return Day(tmp_path, FullDisk(monkeypatch))


def test_a_day_of_faults_in_a_table_ends_equal_to_an_analysis_of_its_valid_rows(day, tmp_path):
    def write(day, step):
        rows = rows_of_step(step, day.rng)
        lines = csv_lines(rows)
        for _ in range(int(day.rng.integers(3))):
            bad = BAD_CSV[int(day.rng.integers(len(BAD_CSV)))].format(step=step)
            lines.insert(int(day.rng.integers(len(lines))), bad)
            day.bad += 1
        if step % 17 == 5:  # a writer that was killed amid a quoted text, and went on
            lines.insert(int(day.rng.integers(len(lines))), '"never closed\n')
            day.bad += 1
        with open(day.run, "a") as file:
            file.write("".join(lines) if step else "prompt,step,reward\n" + "".join(lines))
        day.clean += rows

    today = day
    today.run = tmp_path / "run.csv"
    check(today, today.live(write, FAULTS), tmp_path / "expected.csv")


def test_a_day_of_faults_in_a_folder_ends_equal_to_an_analysis_of_its_valid_rows(day, tmp_path):
    def write(day, step):
        rows = rows_of_step(step, day.rng)
        lines = jsonl_lines(rows)
        for _ in range(int(day.rng.integers(3)) if step < 60 else 0):
            bad = BAD_JSONL[int(day.rng.integers(len(BAD_JSONL)))].format(step=step)
            lines.insert(int(day.rng.integers(len(lines))), bad)
            day.bad += 1
        day.run.mkdir(exist_ok=True)
        (day.run / f"{step}.jsonl").write_text("".join(lines))
        if step > 20 and step % 5 == 0:  # old files go
            (day.run / f"{step - 20}.jsonl").unlink(missing_ok=True)
        day.clean += rows

    def stray(day):
        """A link to nothing among the files, a folder, and a pipe that nobody writes to."""
        if not day.run.exists():
            return None
        names = [day.run / f"{number}.jsonl" for number in (100_000, 100_001, 100_002)]
        names[0].symlink_to("nowhere")
        names[1].mkdir()
        os.mkfifo(names[2])

        def back():
            names[0].unlink()
            names[1].rmdir()
            names[2].unlink()

        return back

    today = day
    check(today, today.live(write, [*FAULTS, stray]), tmp_path / "expected.csv")


def test_a_folder_is_listed_once_a_look(tmp_path, monkeypatch):
    """Before, each file was preceded by a listing of all: 4,000 files took 212 s."""
    for step in range(300):
        (tmp_path / f"{step}.jsonl").write_text("".join(jsonl_lines([("a", step, 1.0), ("b", step, 0.0)])))
    listed, numbered = [], rollout_folder.numbered
    monkeypatch.setattr(rollout_folder, "numbered", lambda path: listed.append(path) or numbered(path))
    watch = Follower(tmp_path, "auto", {}, ["kae:bandwidth=5"], None, "kaestat watch")
    watch.look()
    assert watch.summary().n_steps == 299 and len(listed) == 1


def test_a_state_of_other_methods_or_a_torn_one_is_not_gone_on_from(tmp_path):
    run, out = tmp_path / "run.csv", tmp_path / "out"
    run.write_text("prompt,step,reward\na,0,1\na,1,0\na,2,1\n")

    def follow(methods):
        watch = Follower(run, "auto", {}, methods, out, "kaestat watch")
        watch.resume()
        return watch

    follow(["kae"]).look()
    assert follow(["kae"]).summary().n_steps == 2
    other = follow(["kalman"])
    assert other.summary().n_steps == 0 and "other methods" in other.waiting
    (out / STATE).write_bytes((out / STATE).read_bytes()[:-5])
    torn = follow(["kae"])
    assert torn.summary().n_steps == 0 and "cut short" in torn.waiting
    torn.look()
    assert torn.summary().n_steps == 2


def test_a_newest_step_that_goes_on_after_a_restart_is_whole(tmp_path):
    run, out = tmp_path / "run.csv", tmp_path / "out"
    run.write_text("prompt,step,reward\na,0,1\na,0,0\na,1,1\n")
    first = Follower(run, "auto", {}, ["kae"], out, "kaestat watch")
    first.look()
    first.finish()
    assert first.summary().n_completions == 3
    with open(run, "a") as file:
        file.write("a,1,0\na,2,1\n")
    again = Follower(run, "auto", {}, ["kae"], out, "kaestat watch")
    again.resume()
    again.look()
    assert again.summary().n_completions == 4 and again.summary().late == 0


@pytest.mark.parametrize("name", ["run.csv", "rollouts"])
def test_a_log_that_begins_anew_while_the_disk_is_full_begins_anew_at_the_next_look(tmp_path, monkeypatch, name):
    disk, run = FullDisk(monkeypatch), tmp_path / name
    watch = Follower(run, "auto", {}, ["kae:bandwidth=5"], None, "kaestat watch")

    def write(reward):
        rows = [("a", step, reward) for step in range(4)]
        if name == "run.csv":
            run.write_text("prompt,step,reward\n" + "".join(csv_lines(rows)))
            return
        run.mkdir(exist_ok=True)
        for row in rows:
            (run / f"{row[1]}.jsonl").write_text(jsonl_lines([row])[0])

    write(0.25)
    watch.look()
    write(1.0)
    os.utime(run / "1.jsonl" if run.is_dir() else run, ns=(1, 1))
    disk.on = {"temporary"}
    watch.look()
    assert "No space left" in watch.waiting and watch.summary().reward.mean == 0.25
    disk.on = set()
    watch.look()
    summary = watch.summary()
    assert summary.reward.mean == 1.0 and summary.late == 0 and "began anew" in watch.waiting


@pytest.mark.parametrize("name", ["run.jsonl", "rollouts", "completions"])
def test_completions_that_nobody_graded_are_counted_and_not_warned_of_at_each_look(tmp_path, name):
    run, out = tmp_path / name, tmp_path / "out"

    def write(step):
        """Two graded completions and one that is not, as verl writes them, or TRL."""
        rows = [{"input": "a", "output": "so", "score": score, "step": step} for score in (1.0, 0.0, None)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        if name == "run.jsonl":
            with open(run, "a") as file:
                file.write(lines)
            return
        run.mkdir(exist_ok=True)
        if name == "rollouts":
            (run / f"{step}.jsonl").write_text(lines)
        else:
            table = pd.DataFrame({"step": step, "prompt": "a", "completion": [f"{step}{k}" for k in range(3)]})
            table = table.assign(accuracy=[1.0, 0.0, np.nan], advantage=0.0)
            table.to_parquet(run / f"completions_{step:05d}.parquet")

    def follow():
        watch = Follower(run, "auto", {}, ["kae:bandwidth=5"], out, "kaestat watch")
        watch.resume()
        return watch

    watch = follow()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(1, 5):
            write(step)
            watch.look()
        watch.finish()  # writes the state
        watch = follow()
        write(5)
        watch.look(last=True)
        watch.finish()
    assert watch.summary().n_completions == 10
    assert watch.summary().told == ("5 completions without a reward left out",)
