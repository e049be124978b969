"""The entry point of the shell's ``kaestat``, loaded before NumPy and pandas.

While these are imported, an interruption ends the process at once: extension modules turn exceptions into errors of
their own. From then on it is Python's, and `kaestat.report.cli` tells what was written.

Imported modules live until the end, so Python's search for unreachable objects leaves them out. That saves .07 (.02 to
.14) of the processor time of ``kaestat analyze`` on a log of 268,000 completions.
"""

import gc
import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130


def main() -> None:
    """Run the command line, and exit with its status."""
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # jobs in the background ignore it
    interrupted = []

    def leave(number: int, frame: FrameType | None) -> None:
        os.write(2, b"kaestat: interrupted; nothing was written.\n")
        os._exit(INTERRUPTED)

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.append(number)
        raise KeyboardInterrupt

    def listen() -> None:
        gc.freeze()
        gc.enable()
        if heard:
            signal.signal(signal.SIGINT, interrupt)

    if heard:
        signal.signal(signal.SIGINT, leave)
    gc.disable()
    from kaestat.report.cli import run

    try:
        status = run(sys.argv[1:], imported=listen)
    except KeyboardInterrupt:
        status = INTERRUPTED
    if heard:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done
    sys.exit(INTERRUPTED if interrupted else status)
