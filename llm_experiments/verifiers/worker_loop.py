"""What a bounded worker runs: requests in, replies out, one line of JSON each, within limits set before anything else.

Started by `llm_experiments.verifiers.worker_pool` as ``python -m MODULE``; never imports torch. The process that is
started prepares and then forks the child that answers. A child that ends, or is ended at its limit, is forked anew in
milliseconds, where a new process would take a second to import its libraries.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any


def serve(prepare: Callable[[dict], Callable[[Any], Any]]) -> None:
    """Answer requests until the standard input closes.

    The first line of input holds ``memory_bytes``, ``seconds`` and the ``arguments`` of ``prepare``, which makes the
    function that answers requests. The first line of output, and one more whenever a child takes the place of another,
    holds the ``child``'s process id. Each later line of input is a number and a request, and its reply repeats the
    number. A request that raises is answered by an error; one that runs out of memory or time ends the child, as its
    state is then unknown.
    """
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not look like a reply
    settings = json.loads(sys.stdin.readline())
    _limit(resource.RLIMIT_AS, settings["memory_bytes"])
    _limit(resource.RLIMIT_CORE, 0)
    # By its default action the alarm ends the child even in the middle of a C loop: it does not outlive a parent that
    # was killed.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        answer = prepare(settings["arguments"])
    except Exception as error:
        _write(replies, {"error": f"{type(error).__name__}: {error}"})
        return
    ended = None
    while ended != 0:  # a child exits with 0 where the input is closed
        child = os.fork()
        if child == 0:
            _answer(replies, answer, settings["seconds"])
            os._exit(0)
        _write(replies, {"child": child})
        ended = os.waitpid(child, 0)[1]


def _answer(replies: Any, answer: Callable[[Any], Any], seconds: float) -> None:
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        number, request = json.loads(line)
        try:
            reply = {"reply": answer(request)}
        except MemoryError:
            os._exit(1)
        except Exception as error:
            reply = {"error": type(error).__name__}
        signal.setitimer(signal.ITIMER_REAL, 0)
        _write(replies, reply | {"number": number})


def _limit(which: int, amount: int) -> None:
    hard = resource.getrlimit(which)[1]
    amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
    try:
        resource.setrlimit(which, (amount, amount))
    except (ValueError, OSError):  # macOS has no limit on address space; the limit on time remains
        pass


def _write(stream: Any, reply: dict) -> None:
    stream.write(json.dumps(reply) + "\n")
    stream.flush()
