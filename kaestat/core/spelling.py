"""How messages spell an argument: as a Python keyword, or as the command-line option that it came from."""

import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_ON_COMMAND_LINE = ContextVar("_ON_COMMAND_LINE", default=False)
OPTIONS = {
    name: f"--{name.replace('_', '-')}"
    for name in ("format", "kernel", "method", "min_visits", "missing", "n_boot", "seed", "selector")
}


def spelled(argument: str, value: str | int | None = None) -> str:
    """``step=`` or ``step='s'``; on the command line ``--hint step=...`` or ``--hint step=s``, or the option."""
    if not _ON_COMMAND_LINE.get():
        return f"{argument}={'' if value is None else repr(value)}"
    shown = "..." if value is None else value
    return f"{OPTIONS[argument]} {shown}" if argument in OPTIONS else f"--hint {argument}={shown}"


def spelled_list(argument: str) -> str:
    """``reward=[...]``; on the command line, the option to give several times."""
    return f"{spelled(argument)} (once for each)" if _ON_COMMAND_LINE.get() else f"{argument}=[...]"


def named(argument: str) -> str:
    """``min_visits``; on the command line ``--min-visits``."""
    return OPTIONS.get(argument, f"--hint {argument}") if _ON_COMMAND_LINE.get() else argument


def counted(n: int, noun: str) -> str:
    """``1 step``, ``2,000 steps``."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def nearest(name: str, known: Iterable[str]) -> str:
    """``" (did you mean 'kae'?)"`` for a name close to a known one; otherwise an empty string."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def check_parameters(what: str, cls: Any, params: Iterable[str]) -> None:
    """Raise a ValueError that lists the parameters of a class if one is unknown."""
    known = list(inspect.signature(cls).parameters)
    for name in params:
        if name not in known:
            choice = f"it takes {', '.join(known)}" if known else "it takes none"
            raise ValueError(f"{what}: unknown parameter {name!r}{nearest(name, known)}; {choice}.")


@contextmanager
def on_command_line() -> Iterator[None]:
    """A context in which arguments are spelled as command-line options."""
    token = _ON_COMMAND_LINE.set(True)
    try:
        yield
    finally:
        _ON_COMMAND_LINE.reset(token)


def option_first(message: str) -> str:
    """A message that begins with an argument's name, with the option's name instead."""
    message = message.replace("....", "...")  # an option at the end of a sentence
    name = next((name for name in OPTIONS if message.startswith((f"{name} must", f"{name}:"))), None)
    return message if name is None else OPTIONS[name] + message[len(name) :]
