"""The command ``kaestat``: entry point and error messages; the commands themselves are in `kaestat.report.commands`."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exits with status 0, or with 2 and one line on stderr.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; None takes them from the shell.
    """
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """The same, returning the exit status."""
    try:
        from kaestat.report.commands import UsageError, app
    except ModuleNotFoundError as error:
        return _fail(f"{error.name} is not installed; the command line needs: pip install 'kaestat[cli]'")
    try:
        return app(arguments, prog_name="kaestat", standalone_mode=False, obj=arguments) or 0
    except UsageError as error:
        return _fail(f"{error.format_message().rstrip('.')}. See kaestat --help.")
    except (ValueError, TypeError, OSError, ImportError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _fail("interrupted; nothing was written.")


def _fail(message: str) -> int:
    print(f"kaestat: {' '.join(message.split())}", file=sys.stderr)
    return 2
