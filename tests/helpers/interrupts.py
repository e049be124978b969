"""Ctrl-C at a chosen place: a KeyboardInterrupt at the k-th line or operation of kaestat that a call runs."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kaestat
from kaestat.estimator.held_state import Call

SOURCE = str(Path(kaestat.__file__).parent)


class Places:
    """Counts the places of a call at which an interrupt may come, and interrupts it at one of them.

    Counting ends where the call is marked as finished: after that the call only returns, and Python looks for signals
    where functions begin, after calls of C code and where loops start again.

    at: Number of the place, from 0 on; -1 for none.
    operations: Whether each operation of the bytecode is a place, and not each line only.
    """

    def __init__(self, at: int = -1, *, operations: bool = False):
        self.at, self.operations, self.seen, self.over, self.ended = at, operations, 0, False, False

    def _trace(self, frame: Any, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        frame.f_trace_opcodes = self.operations
        if frame.f_code is Call.finish.__code__ and frame.f_locals["self"].finished:
            self.over = True
        if not self.over and event in ("line", "opcode", "call"):
            self.seen += 1
            if self.seen == self.at + 1:
                raise KeyboardInterrupt
        return self._trace

    def run(self, call: Callable[[], Any]) -> Any:
        """The call's result; None if it was interrupted."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return call()
        except KeyboardInterrupt:
            self.ended = True
            return None
        finally:
            sys.settrace(before)


def interrupted(call: Callable[[], Any], at: int, *, operations: bool = False) -> bool:
    """Run a call and interrupt it at a place; whether that ended it.

    It does not where the call has fewer places, and where a generator is closed: there Python passes over what is
    raised.
    """
    places = Places(at, operations=operations)
    places.run(call)
    return places.ended
