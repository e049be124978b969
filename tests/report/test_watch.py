"""``kaestat watch``: what it prints and writes, how it ends, and that its page is a page."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from kaestat import value_risk
from kaestat.datasets import simulated_run
from kaestat.report import watch_command
from kaestat.report.watch_command import Follower
from kaestat.report.watch_page import POINTS, binned
from kaestat.watch import RunMonitor

PROGRAM = "from kaestat.report.cli import main; main()"


@pytest.fixture(scope="module")
def log():
    return simulated_run(n_prompts=40, n_epochs=10).log


@pytest.fixture
def run_file(log, tmp_path):
    path = tmp_path / "run.csv"
    frame = log.frame.assign(length=np.arange(len(log.frame)) % 50 + 1)
    frame[["prompt", "step", "reward", "length"]].to_csv(path, index=False)
    return path


def follower(path, out=None):
    return Follower(path, "auto", {}, ["kae"], out, "kaestat watch")


def test_once_prints_what_the_whole_log_says(command, run_file, log):
    status, out, err = command("watch", run_file, "--once", "--method", "kae")
    assert (status, err) == (0, "")
    risk = value_risk(log, ["kae", "grpo"], n_boot=0).set_index("method")
    for method, row in risk.iterrows():
        assert f"{1000 * row['mse']:.2f} ± {1000 * row['se']:.2f}" in next(
            line for line in out.splitlines() if line.startswith(method)
        )
    assert "groups dead" in out and "gradient noise over grpo's" in out and "kae would have" in out


def test_rewards_that_are_all_alike_give_no_share_of_an_error(command, tmp_path):
    (tmp_path / "run.csv").write_text("prompt,step,reward\n" + "".join(f"a,{k // 2},7\n" for k in range(8)))
    status, out, _ = command("watch", tmp_path / "run.csv", "--once", "--method", "kae")
    assert status == 0 and "nan" not in out and "No method has a lower value error than grpo so far." in out


def test_once_has_a_status_of_its_own_while_there_is_nothing(command, tmp_path):
    status, out, _ = command("watch", tmp_path / "run.csv", "--once")
    assert status == watch_command.NOTHING_YET == 1 and "no such file or folder yet" in out
    (tmp_path / "run.csv").write_text("prompt,step,reward\na,0,high\n")
    status, _, err = command("watch", tmp_path / "run.csv", "--once")
    assert status == 2 and "line 2" in err
    status, _, err = command("watch", tmp_path / "run.csv", "--method", "gppo")
    assert status == 2 and "gppo" in err


def test_both_files_are_written_and_agree_with_what_is_printed(command, run_file, tmp_path):
    out = tmp_path / "report"
    status, printed, _ = command("watch", run_file, "--once", "--out", out)
    document = json.loads((out / "watch.json").read_text())
    page = (out / "watch.html").read_text()
    assert status == 0 and sorted(path.name for path in out.iterdir()) == ["watch.html", "watch.json"]
    assert document["summary"]["last_step"] == 9 and document["steps"]["step"] == list(range(10))
    assert 'http-equiv="refresh"' not in page
    for row in document["summary"]["methods"]:
        assert f"{1000 * row['error']:.2f}" in printed and f"{1000 * row['error']:.2f}" in page


def test_the_page_of_a_run_that_goes_on_reloads_itself(run_file, tmp_path):
    watched = follower(run_file, tmp_path / "out")
    watched.look()
    assert 'http-equiv="refresh"' in (tmp_path / "out" / "watch.html").read_text()
    before = (tmp_path / "out" / "watch.html").stat().st_mtime_ns
    watched.look()
    assert (tmp_path / "out" / "watch.html").stat().st_mtime_ns == before, "nothing was new"


@pytest.fixture
def interruptible():
    """As in a terminal, also where the tests run in the background of a shell, which ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_it_with_a_last_summary(run_file, tmp_path, interruptible):
    out = tmp_path / "out"
    arguments = [sys.executable, "-c", PROGRAM, "watch", str(run_file), "--out", str(out)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (out / "watch.json").exists() and process.poll() is None:
        time.sleep(0.1)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    printed, told = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in told
    assert "step 8; reward" in printed.splitlines()[0]  # the line of the first look, one step behind
    assert "Step 9:" in printed and told.strip() == f"kaestat: interrupted; the last summary is in {out}."
    assert json.loads((out / "watch.json").read_text())["summary"]["last_step"] == 9


def test_an_interruption_amid_a_look_waits_for_its_end(run_file, monkeypatch, command, interruptible):
    def interrupted(self, *, last=False):
        signal.raise_signal(signal.SIGINT)
        look(self, last=last)

    look = Follower.look
    monkeypatch.setattr(Follower, "look", interrupted)
    status, printed, _ = command("watch", run_file)
    assert status == 130 and "Step 9:" in printed
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interruption_does_not_wait(interruptible):
    done = []
    with pytest.raises(KeyboardInterrupt), watch_command._uninterrupted():
        signal.raise_signal(signal.SIGINT)
        done.append("after the first")
        signal.raise_signal(signal.SIGINT)
        done.append("after the second")
    assert done == ["after the first"]


def test_a_look_cut_short_by_a_second_interruption_leaves_the_saved_state(
    run_file, tmp_path, monkeypatch, interruptible
):
    text = run_file.read_text()
    run_file.write_text(text[: len(text) // 2])
    following = follower(run_file, tmp_path)
    following.look()
    run_file.write_text(text)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(RunMonitor, "_account", lambda *_: signal.raise_signal(signal.SIGINT))
        following.look()
    following.finish()
    assert "interrupted" in following.waiting
    (again := follower(run_file, tmp_path)).resume()
    again.look()
    (whole := follower(run_file)).look()
    assert again.summary().n_completions == whole.summary().n_completions
    assert again.summary().methods[0].error == pytest.approx(whole.summary().methods[0].error, rel=1e-9)


def test_where_there_is_no_terminal_a_line_a_minute_is_printed(run_file, monkeypatch, command):
    lines = run_file.read_text().splitlines(keepends=True)
    ends = iter([300, 900, 1500, len(lines)])
    clock = iter([0.0, 30.0, 61.0, 95.0])

    def grow(seconds):
        end = next(ends, None)
        if end is None:
            raise KeyboardInterrupt
        run_file.write_text("".join(lines[:end]))

    run_file.write_text(lines[0])
    monkeypatch.setattr(watch_command.time, "sleep", grow)
    monkeypatch.setattr(watch_command.time, "monotonic", lambda: next(clock, 99.0))
    status, printed, _ = command("watch", run_file)
    told = [line for line in printed.splitlines() if line.startswith(("no step", "step "))]
    assert status == 130 and told[0].startswith("no step is finished yet") and len(told) == 2


def test_figures_are_binned_without_losing_or_adding_to_their_mean():
    steps = {"step": np.arange(10_000.0), "a": np.ones(10_000), "b": np.where(np.arange(10_000) % 2, np.nan, 3.0)}
    step, figures = binned(steps)
    assert len(step) <= POINTS and step[-1] == 9999
    assert (figures["a"] == 1).all() and (figures["b"] == 3).all()
    few, same = binned({"step": [0.0, 1.0], "a": [5.0, float("nan")]})
    assert few.tolist() == [0, 1] and same["a"][0] == 5 and np.isnan(same["a"][1])
