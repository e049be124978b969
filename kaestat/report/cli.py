"""The entry point of the shell's ``kaestat``, which loads nothing heavy: an interruption of imports ends it at once."""

import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kaestat.core.spelling import on_command_line, option_first
from kaestat.report.printable import printable

INTERRUPTED = 130  # the status by which shells know an interruption


@dataclass
class Call:
    """One call of the command."""

    arguments: list[str]  # As given
    outcome: str = "nothing was written"  # What it has written so far, for the case that it is interrupted


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exits with status 0, with 2 and one line on stderr, or with 130 if interrupted."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """The exit status after running the command line."""
    call = Call(arguments)
    try:
        with _ended_by_interruptions():
            import typer

            from kaestat.report import commands, watch_command  # noqa: F401 - watch
    except ModuleNotFoundError as error:
        return _fail(f"{error.name} is not installed; the command line needs: pip install 'kaestat[cli]'")
    usage_error: Any = typer.BadParameter.__base__  # typer exports it under no name of its own
    try:
        with on_command_line(), warnings.catch_warnings():
            warnings.showwarning = lambda message, *where, **also: _say(f"warning: {message}")
            status = commands.app(arguments, prog_name="kaestat", standalone_mode=False, obj=call) or 0
        return _interrupted(call) if status == INTERRUPTED else status
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted(call)
    except usage_error as error:
        message = error.format_message()
        return _fail(f"{message}{'' if message.endswith(('.', '?')) else '.'} See kaestat --help.")
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        return _fail(option_first(str(error) or type(error).__name__))


@contextmanager
def _ended_by_interruptions() -> Iterator[None]:
    """While this lasts, an interruption ends the process at once; jobs in the background ignore them as before."""

    def leave(*_: Any) -> None:
        os.write(2, b"kaestat: interrupted; nothing was written.\n")
        os._exit(INTERRUPTED)

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupted(call: Call) -> int:
    _say(f"interrupted; {call.outcome}.")
    return INTERRUPTED


def _fail(message: str) -> int:
    _say(message)
    return 2


def _say(message: str) -> None:
    print(f"kaestat: {printable(' '.join(message.split()))}", file=sys.stderr)
