"""What a bounded worker runs: requests in, outcomes out, one line of JSON each.

Started by `llm_experiments.verifiers.worker_pool` as ``python -m MODULE``; never imports torch. The process that is
started prepares and then forks the child that answers. A child that the system ends at its limit of time, also amid a
loop in C, is forked anew in milliseconds, where a new process would take a second to import its libraries.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

AGAIN = 10  # exit code of a child that another one shall follow


def serve(prepare: Callable[[], Callable[[Any], bool]]) -> None:
    """Answer requests until the standard input closes.

    The first line of input is the size of the address space in bytes. The first line of output is ``null``, or why
    ``prepare``, which makes the function that answers requests, could not. Each later line of input holds a request and
    its seconds, and has one line of output: ``right``, ``wrong``, ``failed`` where it raised, or ``late`` where the
    seconds were over. If the child ends in any other way, this process ends too.
    """
    outcomes = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints goes elsewhere

    def say(line: str | None) -> None:
        outcomes.write(json.dumps(line) + "\n")
        outcomes.flush()

    _limit(resource.RLIMIT_AS, json.loads(sys.stdin.readline()))
    _limit(resource.RLIMIT_CORE, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # whose action ends a process
    try:
        answer = prepare()
    except Exception as error:
        say(f"{type(error).__name__}: {error}")
        return
    say(None)
    while True:
        child = os.fork()
        if child == 0:
            os._exit(_answer(answer, say))
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
            say("late")
        elif os.waitstatus_to_exitcode(status) != AGAIN:
            return


def _answer(answer: Callable[[Any], bool], say: Callable[[str], None]) -> int:
    """Answer until the input closes, or memory was short: what is left of the state is then unknown."""
    for line in sys.stdin:
        request, seconds = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            outcome, code = "right" if answer(request) else "wrong", 0
        except MemoryError:
            outcome, code = "failed", AGAIN
        except Exception:
            outcome, code = "failed", 0
        signal.setitimer(signal.ITIMER_REAL, 0)
        say(outcome)
        if code:
            return code
    return 0


def _limit(which: int, amount: int) -> None:
    hard = resource.getrlimit(which)[1]
    amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
    try:
        resource.setrlimit(which, (amount, amount))
    except (ValueError, OSError):  # macOS has no limit on address space; the limit on time remains
        pass
