"""What the command line does about its own options: folders, advice in its own words, version and completion."""

import io
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.main import get_command

import kaestat
from kaestat.report import commands, options, out_folder
from kaestat.report.analysis import analyze
from kaestat.report.application import COMMANDS, application

HEADER = "prompt,step,reward\n"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text(HEADER + "".join(f"p{k % 3},{k // 6},{k % 2}\n" for k in range(60)))
    return path


@pytest.fixture
def singles(tmp_path):
    path = tmp_path / "singles.csv"
    path.write_text(HEADER + "".join(f"p{k % 3},{k // 3},{k % 2}\n" for k in range(60)))
    return path


QUICK = ("--method", "kae", "--n-boot", "50")


def shown(folder):
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def test_a_folder_that_cannot_be_written_is_refused_before_the_log_is_read(command, log, tmp_path, monkeypatch):
    def deny(dir):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(out_folder.tempfile, "TemporaryFile", deny)
    monkeypatch.setattr(commands, "read_log", lambda *a, **k: pytest.fail("the log was read"))
    status, printed, err = command("analyze", log, *QUICK, "--out", tmp_path / "new" / "out")
    assert (status, printed) == (2, "") and "nothing can be written to" in err and "Permission denied" in err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("inner", ["", "deeper/still"])
def test_a_file_for_a_folder_is_refused_before_the_log_is_read(command, log, monkeypatch, inner):
    monkeypatch.setattr(commands, "read_log", lambda *a, **k: pytest.fail("the log was read"))
    status, _, err = command("analyze", log, *QUICK, "--out", log / inner)
    assert status == 2 and "name a folder" in err


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_result_is_printed_even_if_writing_fails(command, log, tmp_path, monkeypatch, form):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(commands, "write_report", full)
    options = ["--json"] if form == "json" else []
    status, printed, err = command("analyze", log, *QUICK, "--out", tmp_path / "out", *options)
    assert status == 2 and "No space left on device; nothing was written" in err
    assert json.loads(printed)["risk"] if form == "json" else "kae" in printed
    assert not (tmp_path / "out").exists()


def test_files_of_an_earlier_analysis_never_stay_beside_new_ones(command, log, singles, tmp_path):
    out = tmp_path / "out"
    assert command("analyze", log, *QUICK, "--out", out)[0] == 0
    first = shown(out)
    assert {"risk.csv", "bandwidth.csv", "risk_vs_bandwidth.png"} <= first
    (out / "notes.txt").write_text("mine")
    (out / "bandwidth.csv").write_text("also mine by now")
    assert command("analyze", singles, *QUICK, "--out", out)[0] == 0
    assert shown(out) == {"differences.csv", "provenance.json", "report.html", "notes.txt", "bandwidth.csv"} & (
        first | {"notes.txt"}
    )
    assert (out / "bandwidth.csv").read_text() == "also mine by now"
    (out / "bandwidth.csv").unlink()
    assert command("analyze", log, *QUICK, "--out", out)[0] == 0
    assert shown(out) == first | {"notes.txt"}


def test_files_that_no_analysis_wrote_are_left_alone(command, singles, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "bandwidth.csv").write_text("mine")
    (out / ".kaestat-manifest.json").write_text('{"bandwidth.csv": ["0"], "../run.csv": ["0"], "x": 1, "notes": []}')
    assert command("analyze", singles, *QUICK, "--out", out)[0] == 0
    assert (out / "bandwidth.csv").read_text() == "mine" and singles.exists()


@pytest.mark.parametrize(
    ("name", "content", "options", "words"),
    [
        ("run.csv", "prompt,s,reward\na,0,1\n", [], "Name it with --hint step=..., or"),
        ("run.csv", "prompt,step,score,correct\na,0,1,0\n", [], "choose with --hint reward=score."),
        ("run.csv", "prompt,step,reward\na,0,1\na,0,\n", [], "leave such rows out by --missing drop."),
        ("run.csv", "prompt,step,reward\na,0,1\n", ["--hint", "step=s"], "Name the right one with --hint step=...\n"),
        ("run.csv", "prompt,step,reward\na,0,1\n", ["--hint", "prompt=5"], "has no column '5'"),
        ("run.json", '{"a": [0, 1]}', [], "Pass --hint group_size=...\n"),
        ("run.json", '{"a": [0.3, 1]}', ["--hint", "group_size=2"], "--hint group_size=2 does not fit"),
        ("run.json", '{"a": [0.3, 1]}', ["--hint", "group_size=x"], "group_size must be a number"),
        ("run.txt", "prompt,step,reward\na,0,1\n", [], "pass --format ... with one of"),
        ("run.csv", "prompt,step,reward\na,0,1\na,0,1\na,1,1\na,1,0\n", ["--min-visits", "7"], "lower --min-visits."),
        ("run.csv", "prompt,step,reward\na,0,1\na,0,1\na,1,1\na,1,0\n", ["--seed", "-1"], "kaestat: --seed must be"),
    ],
)
def test_advice_is_in_the_command_line_s_own_words(command, tmp_path, name, content, options, words):
    (tmp_path / name).write_text(content)
    status, _, err = command("analyze", tmp_path / name, *QUICK, *options)
    assert status == 2 and words in err


def test_python_s_advice_stays_python_s(tmp_path, command):
    path = tmp_path / "run.csv"
    path.write_text("prompt,s,reward\na,0,1\n")
    command("analyze", path)
    with pytest.raises(ValueError, match="Name it with step=, or call"):
        kaestat.read_log(path)


def test_hints_given_several_times_are_lists(command, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    right, form = [1.0, 0.0] * 6, [0.5, 0.5] * 6
    columns = {"step": sorted(range(3)) * 4, "prompt": ["a"] * 12, "completion": ["x"] * 12, "advantage": [0.0] * 12}
    path = tmp_path / "completions_00001.parquet"
    parquet.write_table(pyarrow.table(columns | {"right": right, "form": form}), path)
    hints = ["--hint", "reward=right", "--hint", "reward=form"]
    hints += ["--hint", "reward_weights=1", "--hint", "reward_weights=0.5"]
    status, _, err = command("bandwidth", path, "--selector", "fixed", *hints)
    assert (status, err) == (0, "")
    log = kaestat.read_log(path, reward=["right", "form"], reward_weights=[1, 0.5])
    assert sorted(set(log.frame["reward"])) == [0.25, 1.25]
    assert options.hints_by_name([h for h in hints if h != "--hint"]) == {
        "reward": ["right", "form"],
        "reward_weights": [1.0, 0.5],
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_reading_and_writing_are_shown_on_a_terminal(command, log, tmp_path, monkeypatch, form):
    screen = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(commands.console, "STDERR", screen)
    options = ["--json"] if form == "json" else []
    assert command("analyze", log, *QUICK, "--out", tmp_path / "out", *options)[0] == 0
    told = screen.file.getvalue()
    assert ("Reading run.csv" in told) == ("Writing to" in told) == (form == "text")


def test_help_lists_all_commands_and_needs_no_numpy():
    code = "from kaestat.report.cli import run; run(['--help']); import sys; print('numpy' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.endswith("False\n")
    every = get_command(application([]))
    assert {name: line for name, (_, line) in COMMANDS.items()} == {
        name: command.help.partition("\n")[0] for name, command in every.commands.items()
    }
    assert all(f"\n  {name} " in printed for name in every.commands)


def test_the_shell_can_complete_commands():
    def run(*arguments, **words):
        program = [sys.executable, "-m", "kaestat.report", *arguments]
        return subprocess.run(program, env=os.environ | words, capture_output=True, text=True, check=False)

    words = {"_KAESTAT_COMPLETE": "complete_bash", "COMP_WORDS": "kaestat ana", "COMP_CWORD": "1"}
    assert run(**words).stdout.split() == ["analyze"]
    ran = run("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_KAESTAT_COMPLETE" in ran.stdout and ran.returncode == 0


WANDB = "_step,question_text,train/reward\n"


def test_names_of_trackers_and_lists_of_rewards_are_read(tmp_path):
    rows = [(step, prompt, [prompt, step % 2, 1]) for step in range(3) for prompt in (0, 1)]
    plain = "".join(f"{step},q{prompt},{z}\n" for step, prompt, rewards in rows for z in rewards)
    (tmp_path / "plain.csv").write_text(WANDB + plain)
    (tmp_path / "lists.csv").write_text(WANDB + "".join(f'{step},q{prompt},"{z}"\n' for step, prompt, z in rows))
    more = {"length": [5, 6, 7], "note": []}
    lines = [{"step": step, "prompt": f"q{prompt}", "rewards": z} | more for step, prompt, z in rows]
    (tmp_path / "lists.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    expected = kaestat.read_log(tmp_path / "plain.csv")
    for name in ("lists.csv", "lists.jsonl"):
        log = kaestat.read_log(tmp_path / name)
        assert log.prompts == expected.prompts
        for column in ("prompt", "step", "reward"):
            np.testing.assert_array_equal(log.frame[column], expected.frame[column])
    assert log.frame["length"].tolist() == [5, 6, 7] * 6
    names = {"prompt": "question_text", "step": "_step", "reward": "train/reward"}
    assert expected.columns == names and "Columns: prompt is question_text, step is _step, reward is train" in next(
        iter(analyze(expected, ["kae", "grpo"], n_boot=0).notes)
    )


def test_a_row_may_be_a_batch_of_conversations_with_a_list_of_rewards_each(tmp_path):
    asked = [[{"role": "user", "content": text}] for text in ("why", "how")]
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({"step": 3, "prompts": asked, "rewards": [[1, 0, 0], [0, 1]], "length": 7}))
    batch = kaestat.read_log(path)
    path.write_text(
        "".join(
            json.dumps({"step": 3, "prompt": prompt, "reward": z, "length": 7}) + "\n"
            for prompt, z in zip(asked, ([1, 0, 0], [0, 1]), strict=True)
        )
    )
    rows = kaestat.read_log(path)  # a conversation of one message is not one prompt for three rewards
    assert batch.prompts == rows.prompts and json.loads(batch.prompts[1]) == asked[1]
    pd.testing.assert_frame_equal(batch.frame, rows.frame)
    assert batch.frame["reward"].tolist() == [1, 0, 0, 0, 1] and batch.frame["prompt"].tolist() == [0, 0, 0, 1, 1]


def test_a_prompt_that_looks_like_a_list_is_a_text_beside_lists_of_rewards(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({"step": 0, "prompt": "[3, 5]", "reward": [1, 0]}))
    assert kaestat.read_log(path).prompts == ["[3, 5]"]


def test_lists_that_do_not_fit_name_their_row(tmp_path):
    path = tmp_path / "run.jsonl"
    row = '{"step": 0, "prompt": "a", "reward": %s, "length": [1, 2]}\n'
    path.write_text(row % "[1, 0]" + row % "[1]")
    with pytest.raises(ValueError, match=r"run\.jsonl, line 2: length has 2 values for 1 reward. Give one"):
        kaestat.read_log(path)
    path.write_text(row % "[1, 0]" + row % '[1, "much"]')
    with pytest.raises(ValueError, match=r"run\.jsonl, line 2: reward is 'much'"):
        kaestat.read_log(path)


def test_all_missing_columns_are_named_in_one_message(command, tmp_path):
    (tmp_path / "run.csv").write_text("loss,epoch,train/reward\n1,0,1\n")
    status, _, err = command("analyze", tmp_path / "run.csv")
    assert status == 2 and "no prompt and no step column; it has loss, epoch, train/reward." in err
    assert "Every row must be a completion, or a group with a list of rewards. Name them with --hint prompt=..." in err
    assert "prompt=..., --hint step=..., or call them" in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "kea"], "unknown name 'kea' (did you mean 'kae'?); choose one of none, "),
        (["--method", "kae:bandwith=3"], "unknown parameter 'bandwith' (did you mean 'bandwidth'?); it takes kernel"),
        (["--method", "kae:bandwidth=loocv"], "unknown name 'loocv' (did you mean 'loo_cv'?)"),
        (["--method", "kae:kernel=triangle"], "(did you mean 'triangular'?)"),
        (["--hint", "promt=x"], "unknown hint 'promt' (did you mean 'prompt'?): format 'csv' takes prompt"),
        (["--hint", "group_size=8"], "hint 'group_size' is for accuracies: format 'csv' takes prompt"),
        (["--format", "cvs"], "kaestat: --format: unknown 'cvs' (did you mean 'csv'?); choose one of auto"),
    ],
)
def test_a_misspelled_name_is_answered_with_the_nearest(command, log, options, words):
    status, _, err = command("analyze", log, *options)
    assert status == 2 and words in err


def test_a_usage_error_ends_its_sentence_once(command):
    _, _, err = command("analyse", "run.csv")
    assert err.strip() == "kaestat: No such command 'analyse'. Did you mean 'analyze'? See kaestat --help."
    _, _, err = command("analyze", "--fast")
    assert "No such option: --fast" in err and err.strip().endswith("). See kaestat --help.")


def test_one_step_is_one_step(command, tmp_path):
    (tmp_path / "run.csv").write_text("prompt,step,reward\na,0,1\na,0,0\n")
    _, out, err = command("analyze", tmp_path / "run.csv", *QUICK)
    assert "2 completions of 1 prompt; 1 visit, 1 per prompt" in out and "; 1 step; " in out
    assert "n_boot" not in err


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
    chosen = ["my_baselines:Mean", "my_baselines:Mean:weight=2", "my_baselines:ready"]
    options = [word for name in chosen for word in ("--method", name)]
    status, out, err = command("analyze", log, *QUICK, *options, "--out", tmp_path / "out")
    assert status == 0, err
    page = (tmp_path / "out" / "report.html").read_text()
    rows = pd.read_csv(tmp_path / "out" / "risk.csv")["method"].tolist()
    assert sorted(rows) == ["Mean(1.0)", "Mean(2)", "Mean(3.0)", "kae"]
    assert all(name in out and name in page for name in rows)
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("my_baselines:Cheat", "Cheat fails 1 of the checks of a baseline: - own_reward: "),
        ("my_baselines:Nothing", "my_baselines.py has no Nothing."),
        ("my_baselines:math", "math must be a subclass of kaestat.baselines.base.Baseline."),
        ("nowhere.at_all:Mean", "there is no module nowhere, here or installed."),
    ],
)
def test_what_is_not_a_baseline_is_refused(command, log, tmp_path, monkeypatch, method, words):
    (tmp_path / "my_baselines.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_baselines", raising=False)
    status, _, err = command("analyze", log, *QUICK, "--method", method)
    assert status == 2 and words in err


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "kaestat.report", "--version"], capture_output=True, text=True)
    assert done.stdout == f"kaestat {kaestat.__version__}\n" and done.returncode == 0
