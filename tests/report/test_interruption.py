"""Ctrl-C: the status 130, one line that is true, and no traceback."""

import signal
import subprocess
import sys
import time

import pytest

from kaestat.report import commands, files
from kaestat.report.cli import run
from tests.helpers.tiers import slow_after

STAGES = ["read_log", "analyze_log", "checksum"]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text("prompt,step,reward\n" + "".join(f"p{k % 3},{k // 6},{k % 2}\n" for k in range(60)))
    return path


@pytest.fixture
def analyze(log, tmp_path, capsys):
    """Run ``analyze --out``; status, what was printed and what was told."""

    def call():
        out = tmp_path / "out"
        status = run(["analyze", str(log), "--method", "kae", "--n-boot", "50", "--out", str(out)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err.strip()

    return call


def interrupt(*arguments, **keywords):
    raise KeyboardInterrupt


@pytest.mark.parametrize("stage", STAGES)
def test_an_interruption_before_the_files_are_there_writes_nothing(analyze, tmp_path, monkeypatch, stage):
    monkeypatch.setattr(commands, stage, interrupt)
    status, _, err = analyze()
    assert status == 130 and "Traceback" not in err
    told = [line for line in err.splitlines() if not line.startswith("kaestat: warning: ")]
    assert len(told) == 1 and told[0].startswith("kaestat: interrupted; nothing was written")
    assert not (tmp_path / "out").exists()


def test_an_interruption_between_files_says_that_they_are_mixed(analyze, tmp_path, monkeypatch):
    write, calls = files.write_atomically, []

    def twice(path, content):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(path)
        write(path, content)

    monkeypatch.setattr(files, "write_atomically", twice)
    status, printed, err = analyze()
    assert status == 130 and "kae" in printed
    assert f"some files in {tmp_path / 'out'} may be of this analysis" in err


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("seconds", slow_after(2, [0.5, 2.0, 0.15, 1.0]))
def test_a_signal_at_any_time_ends_the_command_quietly(log, tmp_path, seconds):
    log.write_text("prompt,step,reward\n" + "".join(f"p{k % 997},{k // 800},{k % 2}\n" for k in range(400_000)))
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from kaestat.report.cli import main\nprint('on', flush=True)\nmain()"
    )
    command = [sys.executable, "-c", code, "analyze", str(log), "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "on\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "kaestat: interrupted; nothing was written" in err and "Traceback" not in err
    assert not (tmp_path / "out").exists()
