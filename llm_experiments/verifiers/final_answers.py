"""Where in a completion its final answer stands. Everything here takes time linear in the text."""

import re
from collections import deque

MAX_CHARACTERS = 20_000
"""Characters of a completion that are looked at, from its end: the answer comes last."""

_BRACES = re.compile(r"(?P<box>\\boxed\s*\{)|\\.|(?P<open>\{)|(?P<close>\})", re.DOTALL)
_ANSWER_IS = re.compile(r"\banswer(?: is|:)", re.IGNORECASE)


def tail(text: str, limit: int = MAX_CHARACTERS) -> str:
    """The last ``limit`` characters of ``text``."""
    return text[-limit:] if len(text) > limit else text


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}`` whose braces close, the outermost where they are nested; None without one.

    Examples
    --------
    >>> last_boxed(r"first \boxed{1}, then \boxed{\frac{3}{4}}, cut: \boxed{5")
    '\\frac{3}{4}'
    """
    last = None
    openings: list[int | None] = []
    for token in _BRACES.finditer(text):
        if token["box"]:
            openings.append(token.end())
        elif token["open"]:
            openings.append(None)
        elif token["close"] and openings:
            start = openings.pop()
            if start is not None:
                last = (start, token.start())
    return None if last is None else text[last[0] : last[1]]


def after_hashes(text: str) -> str | None:
    """The rest of the line after the last ``####`` (GSM8K's mark of its answers); None without one."""
    _, mark, rest = text.rpartition("####")
    return _line(rest) if mark else None


def after_answer_is(text: str) -> str | None:
    """The rest of the line after the last "answer is" or "answer:"; None without one."""
    found = last_match(_ANSWER_IS, text)
    return None if found is None else _line(text[found.end() :])


def last_match(pattern: re.Pattern, text: str) -> re.Match | None:
    """The last of the matches found from the left; None without one."""
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)


def _line(text: str) -> str:
    return text.lstrip().partition("\n")[0]
