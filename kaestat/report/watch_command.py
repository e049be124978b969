"""The command ``kaestat watch``. Imports typer and rich."""

from __future__ import annotations

import shlex
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.live import Live

from kaestat.logs.readers import FORMATS
from kaestat.report import console
from kaestat.report.application import app
from kaestat.report.follower import MINUTE, Follower
from kaestat.report.options import Hint, check_out, hints_by_name, interruptible
from kaestat.report.printable import printable
from kaestat.report.watch_text import watch_line
from kaestat.watch import RunSummary
from kaestat.watch.run_monitor import DEFAULT_METHODS, REFERENCES

POLL = 2.0  # seconds between two looks
NOTHING_YET = 1  # exit status of --once before a step is over


@app.command()
@interruptible
def watch(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Log or rollout folder of a run, begun or not.")],
    method: Annotated[
        list[str],
        typer.Option(
            metavar="SPEC",
            help=f"A method; repeatable. Default: {', '.join(DEFAULT_METHODS)}. {', '.join(REFERENCES)} are added.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    format: Annotated[str, typer.Option(metavar="NAME", help=f"Format of RUN: auto, {', '.join(FORMATS)}.")] = "auto",
    hint: Hint = [],  # noqa: B006
    once: Annotated[bool, typer.Option("--once", help="Look once, with the newest step, and end.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for watch.html and watch.json.", show_default=False)
    ] = None,
) -> None:
    """Follow a running job: value errors, dead groups, reach of the history, noise. Ends by Ctrl-C."""
    if out is not None:
        check_out(out, needs=("jinja2",))
    command = shlex.join(["kaestat", *context.obj.arguments])
    follower = Follower(run, format, hints_by_name(hint), method or list(DEFAULT_METHODS), out, command)
    if once:
        follower.look(last=True)
        follower.finish()
        console.show_run(follower.summary(), follower.waiting)
        if not follower.monitor.summary().n_steps:
            raise typer.Exit(NOTHING_YET)
        return
    follower.resume()
    try:
        with _shown() as show:
            while True:
                with _uninterrupted():
                    follower.look()
                show(follower.summary(), follower.waiting)
                time.sleep(POLL)
    except KeyboardInterrupt:
        with _uninterrupted():
            follower.finish()
        console.show_run(follower.summary(), follower.waiting)
        context.obj.outcome = "that was the last summary" if out is None else f"the last summary is in {out}"
        raise


@contextmanager
def _shown() -> Iterator[Any]:
    """How a summary is shown while the run goes on: in place on a terminal, elsewhere as a line a minute."""
    screen = console.screen()
    if screen.is_terminal:
        with Live(console=screen, auto_refresh=False, transient=True) as live:
            yield lambda summary, waiting: live.update(console.run_table(summary, waiting), refresh=True)
        return
    told: dict[str, Any] = {"when": -MINUTE, "what": None}

    def line(summary: RunSummary, waiting: str) -> None:
        now, what = time.monotonic(), (summary.last_step, summary.n_steps, waiting)
        if now - told["when"] >= MINUTE and what != told["what"]:
            told.update(when=now, what=what)
            print(printable(watch_line(summary) + (f" ({waiting})" if waiting else "")), flush=True)

    yield line


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put off an interruption until what is under way is done, so that no step is taken by half; not a second one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if heard:
            raise KeyboardInterrupt
        heard.append(number)

    signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt
