"""The command ``kaestat watch``: `kaestat analyze` again whenever the log has changed. Imports typer and rich."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from kaestat.report import console
from kaestat.report.commands import app, hints_by_name
from kaestat.report.files import check_folder
from kaestat.report.user_method import method_or_baseline

EVERY = 60.0  # seconds: a step of training takes that long, an analysis takes seconds
NOTHING_YET = 1  # exit status of --once without a log
BY_LINES = (".csv", ".tsv", ".jsonl", ".ndjson")
IN_FOLDERS = ("*.jsonl", "completions_*.parquet", "completions/completions_*.parquet")  # verl's files, and TRL's
States = dict[Path, tuple[int, int]]


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def watch(
    context: typer.Context,
    every: Annotated[float, typer.Option(min=1.0, help="Seconds between two looks.")] = EVERY,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
) -> None:
    """kaestat analyze LOG, again whenever LOG has changed; takes its arguments and options. Ends by Ctrl-C."""
    analysis = _parsed(context)
    log: Path = analysis.params["log"]
    analysed: States = {}
    message = ""
    with tempfile.TemporaryDirectory() as folder:
        copy = analysis.params["log"] = Path(folder) / log.resolve().name
        while True:
            state, before = _files(log), message
            if not state:
                message = f"{log}: no log is there; waits for it."
            elif state != analysed:
                try:
                    message = _copied(log, state, copy)
                    analysis.command.invoke(analysis)
                    analysed, before = state, ""
                    context.obj.outcome = f"the last answer is of {time.strftime('%H:%M:%S')}"
                except (ValueError, TypeError, OSError) as error:
                    fault = str(error).replace(str(copy), str(log))
                    if once:
                        raise ValueError(fault) from error
                    message = f"{fault} The next look tries again."
            if message and message != before:
                console.STDERR.print(Text(f"kaestat: {message}"), soft_wrap=True)
            if once:
                raise typer.Exit(0 if state else NOTHING_YET)
            time.sleep(every)


def _parsed(context: typer.Context) -> Any:
    """The call of ``kaestat analyze`` with the other arguments; an error where they are wrong whatever the log is."""
    kaestat: Any = context.parent
    call = kaestat.command.commands["analyze"].make_context("watch", list(context.args), kaestat)
    if call.params["log"] is None or call.params["simulated"]:
        raise ValueError("kaestat watch: name one LOG, a file or folder, without --simulated.")
    for specification in call.params["method"]:
        method_or_baseline(specification)
    hints_by_name(call.params["hint"])
    if call.params["out"] is not None:
        check_folder(call.params["out"])
    return call


def _files(log: Path) -> States:
    """Size and time of each file of the log; empty if there is none."""
    states: States = {}
    for file in [part for kind in IN_FOLDERS for part in log.glob(kind)] if log.is_dir() else [log]:
        with suppress(FileNotFoundError):  # it vanishes while we look
            state = file.stat()
            states[file] = (state.st_size, state.st_mtime_ns)
    return states


def _copied(log: Path, files: States, copy: Path) -> str:
    """Copy the newest file and link the others; returns a sentence about a last line that is left out, or nothing."""
    shutil.rmtree(copy, ignore_errors=True)
    newest = max(files, key=lambda file: files[file][1])
    for file in files:
        target = copy / file.relative_to(log)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file != newest:
            target.symlink_to(file.resolve(strict=True))
    target = copy / newest.relative_to(log)
    shutil.copyfile(newest, target)
    if newest.suffix.lower() not in BY_LINES or not target.stat().st_size:
        return ""
    with open(target, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as text:
        size, whole = len(text), text.rfind(b"\n") + 1
    os.truncate(target, whole)
    return f"{newest}: the last line has no line break yet and is left out." if whole < size else ""
