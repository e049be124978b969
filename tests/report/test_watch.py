"""``kaestat watch``: an answer of `kaestat analyze` for each change of the log, whatever happens to it meanwhile."""

import json
import os

import pytest

from kaestat.report import watch_command

OPTIONS = ("--method", "kae", "--n-boot", "40")
ROWS = [f"p{k % 12},{k // 24},{k % 7 % 2}\n" for k in range(24 * 8)]
SENTENCE = "The next look tries again."


def csv(steps, torn=""):
    return "prompt,step,reward\n" + "".join(ROWS[: 24 * steps]) + torn


def jsonl(step):
    rows = (row.strip().split(",") for row in ROWS[24 * step : 24 * (step + 1)])
    return "".join(json.dumps({"input": p, "output": "", "step": int(t), "score": float(r)}) + "\n" for p, t, r in rows)


@pytest.fixture
def watch(command, monkeypatch):
    """Watch a log while it changes between looks, until Ctrl-C; what is printed, and told without warnings."""

    def call(log, *changes, options=OPTIONS):
        waiting = iter(changes)

        def sleep(seconds):
            change = next(waiting, None)
            if change is None:
                raise KeyboardInterrupt
            change()

        monkeypatch.setattr(watch_command.time, "sleep", sleep)
        status, out, err = command("watch", log, *options)
        assert status == 130
        *told, end = (line for line in err.splitlines() if not line.startswith("kaestat: warning: "))
        assert end.startswith("kaestat: interrupted; ")
        return out, told

    return call


@pytest.fixture
def answers(command, tmp_path):
    """What ``kaestat analyze`` prints of logs of the same name with these texts."""

    def call(*texts):
        (tmp_path / "apart").mkdir()
        log, printed = tmp_path / "apart" / "run.csv", ""
        for text in texts:
            log.write_text(text)
            printed += command("analyze", log, *OPTIONS)[1]
        return printed

    return call


def test_a_growing_file_is_analysed_again_up_to_its_last_whole_line(watch, answers, tmp_path):
    log = tmp_path / "run.csv"
    log.write_text(csv(4))
    torn = ROWS[96][:-1]  # whole fields, but of a longer number perhaps
    printed, told = watch(log, lambda: None, lambda: log.write_text(csv(4, torn)), lambda: log.write_text(csv(8)))
    assert printed == answers(csv(4), csv(4), csv(8))
    assert told == [f"kaestat: {log}: the last line has no line break yet and is left out."]


def test_a_file_that_is_not_there_vanishes_or_is_unreadable_is_waited_for(watch, answers, tmp_path):
    log = tmp_path / "run.csv"
    changes = [
        lambda: log.write_text(""),
        lambda: log.write_text(csv(4)),
        log.unlink,
        lambda: log.write_text(csv(4) + "p1,5\n"),
        lambda: log.write_text(csv(8)),
    ]
    printed, told = watch(log, *changes)
    assert printed == answers(csv(4), csv(8))
    assert [str(log) in line for line in told] == [True] * 4
    assert [line.endswith(SENTENCE) for line in told] == [False, True, False, True]


@pytest.mark.parametrize("torn", ['{"input": "p0", "sc', ""])
def test_a_folder_is_read_with_each_new_file(watch, command, tmp_path, torn):
    def write(step, end=""):
        (tmp_path / f"{step}.jsonl").write_text(jsonl(step) + end)
        os.utime(tmp_path / f"{step}.jsonl", (step, step))

    for step in range(4):
        write(step)
    printed, told = watch(tmp_path, lambda: write(4, torn), lambda: write(4))
    assert printed.endswith(command("analyze", tmp_path, *OPTIONS)[1])
    assert printed.count("96 completions of") == 1 and printed.count("120 completions of") == (2 if torn else 1)
    assert bool(told) == bool(torn)


def test_once_answers_as_analyze_does_and_writes_the_same_files(command, tmp_path):
    log = tmp_path / "run.csv"
    log.write_text(csv(8))
    found = {}
    for name in ("analyze", "watch"):
        out = tmp_path / name
        status, *_ = command(name, log, *OPTIONS, "--out", out, *(["--once"] if name == "watch" else []))
        assert status == 0
        found[name] = {file.name: file.read_bytes() for file in out.iterdir() if file.suffix in (".csv", ".png")}
    assert found["watch"] == found["analyze"] and found["watch"]
    a, b = (json.loads(command(*call, log, *OPTIONS, "--json")[1]) for call in (("analyze",), ("watch", "--once")))
    assert a.pop("provenance")["sha256"] == b.pop("provenance")["sha256"] and a == b


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        (["run.csv"], 1, "no log is there"),
        (["run.csv", "--method", "gppo"], 2, "gppo"),
        (["run.csv", "--hint", "group_size"], 2, "KEY=VALUE"),
        (["run.csv", "--bandwidht-grid"], 2, "--bandwidht-grid"),
        (["--simulated"], 2, "name one LOG"),
        (["broken.csv"], 2, "broken.csv, line 2"),
    ],
)
def test_once_ends_with_a_status_that_tells_what_was_wrong(command, tmp_path, monkeypatch, arguments, status, word):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.csv").write_text("prompt,step,reward\na,0,high\n")
    found, printed, err = command("watch", "--once", *arguments)
    assert (found, printed) == (status, "") and word in err
