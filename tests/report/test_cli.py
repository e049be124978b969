"""The command line: what it prints, what it writes, and how it fails."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import kaestat
from kaestat import read_log, risk_differences, select_bandwidth, value_risk
from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.datasets import simulated_run
from kaestat.report import commands, files
from kaestat.report.analysis import TUNED_METHODS, analyze, default_methods

QUICK = ("--method", "kae", "--n-boot", "50")
HEADER = "prompt,step,reward\n"


def write_log(path, **sizes):
    """A long CSV file of a simulated log."""
    frame = simulated_run(n_prompts=60, n_epochs=12, **sizes).log.frame
    frame[["prompt", "step", "reward"]].to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return write_log(tmp_path_factory.mktemp("logs") / "run.csv")


@pytest.fixture(scope="module")
def singles(tmp_path_factory):
    return write_log(tmp_path_factory.mktemp("logs") / "singles.csv", group_size=1)


def names_in(folder):
    return {path.name for path in folder.iterdir()}


def rows_in(printed):
    return [line.split()[0] for line in printed.splitlines() if line and line.split()[0] in default_methods()]


def test_analyze_prints_every_method_lowest_first(command, log):
    status, out, err = command("analyze", log, "--n-boot", 40, "--all")
    assert (status, err) == (0, "")
    expected = value_risk(read_log(log), default_methods(), n_boot=0).sort_values("mse", kind="stable")
    assert rows_in(out)[: len(expected)] == expected["method"].tolist()
    assert f"{len(read_log(log).frame):,} completions of 60 prompts" in out


def test_methods_that_are_not_scored_change_neither_the_answer_nor_other_rows(command, log):
    _, out, _ = command("analyze", log, "--n-boot", 40)
    assert 10 <= len(rows_in(out)) <= 12 and {DEFAULT_METHOD, "grpo"} <= set(rows_in(out))
    few, every = (analyze(read_log(log), every=every, n_boot=40) for every in (False, True))
    assert few.recommendation == every.recommendation and not every.unscored
    names = set(few.risk["method"])
    assert {*names, *few.unscored} == set(every.risk["method"]) and {"ebpo", "dr_grpo"} <= set(few.unscored)
    for name in ("risk", "differences"):
        whole = getattr(every, name)
        kept = whole[whole["method"].isin(names)].reset_index(drop=True)
        pd.testing.assert_frame_equal(getattr(few, name), kept)
    table = out[out.index("method ") : out.index(" more methods")].splitlines()[1:-1]
    more = int(re.search(r"(\d+) more methods with --all", out)[1])
    assert sum(" to " in row for row in table) + more == len(default_methods()) + len(TUNED_METHODS)


def test_json_holds_what_the_library_computes(command, log):
    specifications = ["grpo", "kae:bandwidth=4,kernel=exponential"]
    options = [part for specification in specifications for part in ("--method", specification)]
    status, out, err = command("analyze", log, *options, "--n-boot", 50, "--seed", 3, "--min-visits", 2, "--json")
    document, rewards = json.loads(out), read_log(log)
    assert (status, err) == (0, "")
    expected = value_risk(rewards, specifications, n_boot=50, seed=3, min_visits=2)
    pd.testing.assert_frame_equal(pd.DataFrame(document["risk"]), expected.sort_values("mse", ignore_index=True))
    differences = pd.DataFrame(document["differences"])
    for reference in (DEFAULT_METHOD, "grpo"):
        mine = differences[differences["reference"] == reference].sort_values("method", ignore_index=True)
        library = risk_differences(rewards, specifications, reference, n_boot=50, seed=3, min_visits=2)
        pd.testing.assert_frame_equal(mine, library.sort_values("method", ignore_index=True))
    assert document["bandwidth"] is None
    assert (document["provenance"]["seed"], document["provenance"]["min_visits"]) == (3, 2)


def test_bandwidth_agrees_with_select_bandwidth(command, log):
    words = ("bandwidth", log, "--kernel", "exponential")
    document = json.loads(command(*words, "--json")[1])
    expected = select_bandwidth(read_log(log), "forward_cv", "exponential")
    assert (document["bandwidth"], document["se"]) == (expected.bandwidth, expected.se)
    answer = f"By forward_cv, exponential kernel: bandwidth {expected.bandwidth:.2f} steps (standard error "
    assert command(*words)[1].startswith(answer)
    without = command("bandwidth", log, "--selector", "fixed", "--json")[1]
    assert json.loads(without, parse_constant=pytest.fail)["se"] is None  # no number is null


def test_one_completion_per_visit_gives_differences_with_an_explanation(command, singles):
    status, out, err = command("analyze", singles, "--n-boot", 40, "--all")
    assert (status, err) == (0, "")
    assert "difference to default" in out and "One completion per visit (G = 1)" in out
    assert "Left out" in out and "krpo" in out
    document = json.loads(command("analyze", singles, "--method", "spo", "--n-boot", 40, "--json")[1])
    expected = risk_differences(read_log(singles), ["spo"], DEFAULT_METHOD, n_boot=40)
    assert document["risk"] is None
    assert document["differences"][0]["difference"] == expected["difference"].item()


def test_visit_index_as_time_is_said_plainly(command, tmp_path):
    path = tmp_path / "accuracies.json"
    path.write_text(json.dumps({f"p{k}": [0.25 * (k % 4), 0.5, 0.25, 1.0] for k in range(6)}))
    status, out, _ = command("analyze", path, "--hint", "group_size=4", "--n-boot", 0)
    assert status == 0
    assert "visit index of each prompt" in out and "groups of 4" in out and "count visits" in out


def test_simulated_run_can_stand_for_a_log(command):
    status, out, _ = command("analyze", "--simulated", "--method", "grpo", "--n-boot", 0, "--json")
    document = json.loads(out)
    assert status == 0 and document["provenance"]["sha256"] is None
    expected = value_risk(simulated_run().log, ["grpo"], n_boot=0)["mse"].item()
    assert document["risk"][0]["mse"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["analyze", "LOG", "--method", "kae:bandwidth=-1"], "--method kae:bandwidth=-1: bandwidth must be positive"),
        (["analyze", "LOG", "--method", "kae:bandwith=3"], "(did you mean 'bandwidth'?)"),
        (["analyze", "LOG", "--min-visits", "99"], "lower --min-visits"),
        (["analyze", "LOG", "--n-boot", "-1"], "--n-boot"),
        (["analyze", "LOG", "--hint", "promt=x"], "(did you mean 'prompt'?)"),
        (["analyze", "LOG", "--hint", "prompt=5"], "has no column '5'"),
        (["analyze", "LOG", "--simulated"], "not both"),
        (["analyze"], "give a reward log"),
        (["analyze", "missing.csv"], "no such file"),
        (["analyze", "TORN"], "torn.json"),
        (["analyze", "ACCURACIES", "--hint", "group_size=2"], "--hint group_size=2 does not fit"),
        (["analyze", "SINGLES", "--method", "ebpo"], "nothing is identified"),
        (["bandwidth", "LOG", "--selector", "nope"], "--selector: unknown name"),
        (["analyse", "LOG"], "Did you mean 'analyze'? See kaestat --help."),
        ([], "Missing command"),
    ],
)
def test_errors_are_one_line_with_status_two_and_write_nothing(command, log, singles, tmp_path, arguments, message):
    (tmp_path / "torn.json").write_text('{"a": [0.25, 0.5')
    (tmp_path / "accuracies.json").write_text('{"a": [0.3, 1]}')
    places = {"LOG": log, "SINGLES": singles}
    places |= {"TORN": tmp_path / "torn.json", "ACCURACIES": tmp_path / "accuracies.json"}
    arguments = [places.get(argument, argument) for argument in arguments]
    if arguments[:1] == ["analyze"]:
        arguments += ["--out", tmp_path / "out"]
    status, printed, err = command(*arguments)
    assert (status, printed) == (2, "")
    assert message in err and len(err.splitlines()) == 1 and err.startswith("kaestat: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("run.csv", "prompt,s,reward\na,0,1\n", "Name it with --hint step=..., or"),
        ("run.csv", "prompt,step,score,correct\na,0,1,0\n", "choose with --hint reward=score."),
        ("run.csv", f"{HEADER}a,0,1\na,0,\n", "leave such rows out by --missing drop."),
        ("run.json", '{"a": [0, 1]}', "Pass --hint group_size=...\n"),
        ("run.txt", f"{HEADER}a,0,1\n", "pass --format ... with one of"),
    ],
)
def test_advice_is_in_the_command_line_s_own_words(command, tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    status, _, err = command("analyze", tmp_path / name, *QUICK)
    assert status == 2 and words in err


def test_hints_given_several_times_are_lists():
    hints = ["reward=right", "reward=form", "reward_weights=1", "reward_weights=0.5", "group_size=4"]
    expected = {"reward": ["right", "form"], "reward_weights": [1.0, 0.5], "group_size": 4, "missing": "drop"}
    assert commands.hints_by_name(hints, "drop") == expected
    assert commands.hints_by_name(["reward_weights=1"]) == {"reward_weights": [1.0]}


def test_a_folder_that_cannot_be_written_is_refused_before_the_log_is_read(command, log, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "read_log", lambda *a, **k: pytest.fail("the log was read"))
    for place in (log, log / "deeper" / "still"):
        status, _, err = command("analyze", log, *QUICK, "--out", place)
        assert status == 2 and "name another folder" in err

    def deny(dir):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files.tempfile, "TemporaryFile", deny)
    status, printed, err = command("analyze", log, *QUICK, "--out", tmp_path / "new" / "out")
    assert (status, printed) == (2, "") and "Permission denied); name another folder" in err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_result_is_printed_even_if_writing_fails(command, log, tmp_path, monkeypatch, form):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_atomically", full)
    options = ["--json"] if form == "json" else []
    status, printed, err = command("analyze", log, *QUICK, "--out", tmp_path / "out", *options)
    assert status == 2 and "No space left on device" in err
    assert json.loads(printed)["risk"] if form == "json" else "kae" in printed


def test_files_of_an_earlier_analysis_never_stay_beside_new_ones(command, log, singles, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "bandwidth.csv").write_text("mine")
    assert command("analyze", singles, *QUICK, "--out", out)[0] == 0
    assert (out / "bandwidth.csv").read_text() == "mine"  # no analysis was here
    assert command("analyze", log, *QUICK, "--out", out)[0] == 0
    assert {"risk.csv", "bandwidth.csv", "risk_vs_bandwidth.png"} <= names_in(out)
    (out / "notes.txt").write_text("mine")
    assert command("analyze", singles, *QUICK, "--out", out)[0] == 0
    assert names_in(out) == {"differences.csv", "provenance.json", "report.html", "notes.txt"}


def test_the_shell_runs_and_completes_commands():
    def run(*arguments, **words):
        program = [sys.executable, "-m", "kaestat.report", *arguments]
        return subprocess.run(program, env=os.environ | words, capture_output=True, text=True, check=False)

    words = {"_KAESTAT_COMPLETE": "complete_bash", "COMP_WORDS": "kaestat ana", "COMP_CWORD": "1"}
    assert run(**words).stdout.split() == ["analyze"]
    assert run("--version").stdout == f"kaestat {kaestat.__version__}\n"


MINE = '''
import math

from kaestat.baselines.base import Baseline


class Mean(Baseline):
    """Mean of the past, 1/2 to begin with."""

    horizon = math.inf

    def __init__(self, weight=1.0):
        object.__setattr__(self, "weight", weight)

    def __repr__(self):
        return f"Mean({self.weight})"

    def values(self, groups, visits, *, step, carry=None):
        xp = groups.xp
        total, count = (xp.sum(part, axis=-1, keepdims=True) for part in (visits.total, visits.count))
        return (total + self.weight / 2) / (count + self.weight) + 0 * groups.reward


class Cheat(Mean):
    def values(self, groups, visits, *, step, carry=None):
        return 0.9 * groups.reward


ready = Mean(3.0)
'''


def test_a_baseline_of_the_user_s_own_is_scored_and_reported(command, log, tmp_path, monkeypatch):
    (tmp_path / "my_baselines.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    chosen = ["my_baselines:Mean", "my_baselines:Mean:weight=2"]
    options = [word for name in chosen for word in ("--method", name)]
    status, out, err = command("analyze", log, *QUICK, *options, "--out", tmp_path / "out")
    assert status == 0, err
    page = (tmp_path / "out" / "report.html").read_text()
    rows = pd.read_csv(tmp_path / "out" / "risk.csv")["method"].tolist()
    assert sorted(rows) == ["Mean(1.0)", "Mean(2)", "kae"]
    assert all(name in out and name in page for name in rows)
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("my_baselines:Cheat", "Cheat fails 1 of the checks of a baseline: - own_reward: "),
        ("my_baselines:ready", "ready must be a subclass of kaestat.baselines.base.Baseline."),
        ("nowhere.at_all:Mean", "there is no module nowhere, here or installed."),
    ],
)
def test_what_is_not_a_baseline_is_refused(command, log, tmp_path, monkeypatch, method, words):
    (tmp_path / "my_baselines.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_baselines", raising=False)
    status, _, err = command("analyze", log, *QUICK, "--method", method)
    assert status == 2 and words in err


@pytest.mark.slow
def test_real_run_has_the_known_risks(command):
    folder = os.environ.get("KAESTAT_DATA")
    path = Path(folder or "") / "acc_step_500_dev.json"
    if not folder or not path.exists():
        pytest.skip("KAESTAT_DATA points to no folder with acc_step_500_dev.json")
    status, out, _ = command("analyze", path, "--json")
    document = json.loads(out)
    risk = {row["method"]: row for row in document["risk"]}
    assert status == 0 and document["facts"]["time_axis"] == "visit" and document["facts"]["group_size"] == [8, 8]
    # E p(1-p) / 7 of the leave-one-out mean, from the group accuracies alone
    groups = json.loads(path.read_text())
    spread = [np.mean([k * (8 - k) / 56 for k in np.rint(8 * np.array(a[1:]))]) for a in groups.values()]
    assert risk["grpo"]["mse"] == pytest.approx(np.mean(spread) / 7, rel=1e-9)
    assert risk["kae:bandwidth=10"]["vs_grpo"] == pytest.approx(0.150, abs=0.001)
    assert risk["kae:bandwidth=10"]["ci_high"] < risk["kalman"]["mse"]
