"""Ctrl-C at a place of one's choice: a KeyboardInterrupt at the k-th line or operation of kaestat that a call runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kaestat
from kaestat.held_state import Call

SOURCE = str(Path(kaestat.__file__).parent)


class Places:
    """Places of a call at which an interrupt may come, counted; it comes at one of them.

    None is counted once a call has marked itself as finished: what is left is the return, and Python looks for signals
    where functions begin, where they are called and where loops go round.

    Parameters
    ----------
    at : int
        Number of the place, from 0 on; -1 for none.
    operations : bool
        Whether each operation of the bytecode is a place, and not each line only.
    """

    def __init__(self, at: int = -1, *, operations: bool = False):
        self.at, self.operations, self.seen = at, operations, 0

    def _trace(self, frame: Any, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        frame.f_trace_opcodes = self.operations
        finished = any(isinstance(each, Call) and each.finished for each in frame.f_locals.values())
        if event in ("line", "opcode", "call") and not finished:
            self.seen += 1
            if self.seen == self.at + 1:
                raise KeyboardInterrupt
        return self._trace

    def run(self, call: Callable[[], Any]) -> Any:
        """What the call gives; None if it was interrupted."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return call()
        except KeyboardInterrupt:
            return None
        finally:
            sys.settrace(before)


def interrupted(call: Callable[[], Any], at: int, *, operations: bool = False) -> bool:
    """Run a call with an interrupt at a place; whether the call has so many."""
    places = Places(at, operations=operations)
    places.run(call)
    return places.seen > at
