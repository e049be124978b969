"""The application of the command ``kaestat``, and its commands by name. Imports typer alone, for quick help."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

import kaestat

UsageError: Any = typer.BadParameter.__base__  # typer exports it under no name of its own
Interruption = typer.Abort

COMMANDS = {  # the module of each, and the first line of its help
    "analyze": ("commands", "Value MSE of every method on LOG, with intervals, from its rewards alone."),
    "bandwidth": ("commands", "The bandwidth that LOG asks for, with its standard error and risk path."),
    "methods": ("commands", "Names of all methods, with their values and sources."),
    "compare": (
        "compare_command",
        "Two runs beside each other: rewards, dead groups, value errors, completions to the same mean reward.",
    ),
    "watch": (
        "watch_command",
        "kaestat analyze LOG, again whenever LOG has changed; takes its arguments and options. Ends by Ctrl-C.",
    ),
}

app = typer.Typer(rich_markup_mode=None)


def application(arguments: Sequence[str]) -> typer.Typer:
    """The application with the commands that these arguments need; for ``--help`` with their first lines alone."""
    first = arguments[0] if arguments else ""
    if first in ("--help", "--version"):
        return _without_work()
    for module, _ in [COMMANDS[first]] if first in COMMANDS else COMMANDS.values():
        import_module(f"kaestat.report.{module}")
    return app


def _without_work() -> typer.Typer:
    lines = typer.Typer(rich_markup_mode=None)
    lines.callback()(kaestat_command)
    for name, (_, line) in COMMANDS.items():
        lines.command(name, help=line)(lambda: None)
    return lines


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"kaestat {kaestat.__version__}")
        raise typer.Exit


@app.callback()
def kaestat_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Which baseline would have had the lowest error on a reward log you already have?"""
