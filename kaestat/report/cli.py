"""The command ``kaestat``: entry point and error messages; `kaestat.report.commands` holds the commands themselves."""

import sys
import warnings
from collections.abc import Callable, Sequence
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
    """Run the command line; exits with status 0, with 2 and one line on stderr, or with 130 if interrupted.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; None takes them from the shell.
    """
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str], *, imported: Callable[[], None] | None = None) -> int:
    """The exit status after running the command line; ``imported`` is called once all modules are loaded."""
    call = Call(arguments)
    try:
        try:
            from kaestat.report.application import Interruption, UsageError, application

            app = application(arguments)
        except ModuleNotFoundError as error:
            return _fail(f"{error.name} is not installed; the command line needs: pip install 'kaestat[cli]'")
        if imported is not None:
            imported()
        try:
            with on_command_line(), warnings.catch_warnings():
                warnings.showwarning = _say_warning
                status = app(arguments, prog_name="kaestat", standalone_mode=False, obj=call) or 0
            return _interrupted(call, None) if status == INTERRUPTED else status
        except Interruption as interruption:
            return _interrupted(call, interruption.__cause__)
        except UsageError as error:
            message = error.format_message()
            return _fail(f"{message}{'' if message.endswith(('.', '?')) else '.'} See kaestat --help.")
        except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
            return _fail(option_first(str(error) or type(error).__name__))
    except KeyboardInterrupt as interruption:
        return _interrupted(call, interruption)


def _interrupted(call: Call, cause: BaseException | None) -> int:
    _fail(str(cause or "") or f"interrupted; {call.outcome}.")
    return INTERRUPTED


def _say_warning(message: Warning | str, *where: Any, **also: Any) -> None:
    """What stands in for `warnings.showwarning`."""
    _say(f"warning: {message}")


def _fail(message: str) -> int:
    _say(message)
    return 2


def _say(message: str) -> None:
    print(f"kaestat: {printable(' '.join(message.split()))}", file=sys.stderr)
