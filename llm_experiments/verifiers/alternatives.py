r"""Answers that name several: ``42 \text{ or } 43``. Whoever hedges has not answered."""

import re

from .units import unwrapped

_OR = re.compile(r"\\l?or(?![A-Za-z])|(?<![A-Za-z\\])or(?![A-Za-z])|\\vee(?![A-Za-z])", re.IGNORECASE)
_SEVERAL = re.compile(r"(?<!\\),(?![0-9]{3}(?![0-9]))|;|\\pm|\\mp|\\cup|\band\b")


def alternatives(passage: str) -> list[str]:
    r"""The answers between which a passage leaves the choice; one where it does not.

    Examples
    --------
    >>> alternatives(r"18\text{ dollars or } 19")
    ['18  dollars', '19']
    >>> alternatives("4 more")
    ['4 more']
    """
    parts = [part.strip() for part in _OR.split(unwrapped(passage))]
    return parts if len(parts) > 1 else [passage]


def is_several(answer: str) -> bool:
    """Whether a ground truth itself has several values, such as the roots of an equation.

    Examples
    --------
    >>> is_several("1, -2"), is_several(r"3 \\pm \\sqrt{2}"), is_several("1,234")
    (True, True, False)
    """
    return len(alternatives(answer)) > 1 or _SEVERAL.search(answer) is not None
