r"""Exact numbers: arithmetic and GSM8K.

A completion's answer is read by the first of these rules whose passage holds a number:

1. the last closed ``\boxed{...}`` or ``\fbox{...}``;
2. the first formula of the line after the last ``####``;
3. the first formula of the sentence after the last "answer is" or "answer:";
4. the last formula of the text.

A formula is read as a whole, behind its last equals sign ("the answer is 3 + 5 = 8"): an expression such as ``3 + 5``,
``9**9``, ``2\sqrt{3}``, ``5x`` or ``10:00`` is not a number. It is never evaluated, and no operand is taken for the
answer.

An answer that leaves the choice between numbers is none: ``42 or 43``, and in a box or after ``####`` also ``42, 43``
and ``42 and 43``. The same number in other words (``1/2 or 0.5``) or in another unit (``2 hours or 120 minutes``)
leaves no choice, and the first counts.

A number is an integer, a decimal, a fraction ``3/4``, ``\frac{3}{4}`` or ``\frac34``, or a mixed number of both, with
a sign, with separators between thousands, or with a power of ten such as ``1.5e3`` or ``3\times10^{8}``; signs of
currency and percentage and units are ignored, as GSM8K's ground truths leave them out; where both have one, another
unit of measurement is another answer (`units`). Comparison is exact, between fractions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from .final_answers import MAX_CHARACTERS, passages
from .spelling import plain
from .units import unit_after, units_differ, unwrapped

MAX_NUMBER_CHARACTERS = 200
"""Longer numbers are not read: no problem here has them, and arithmetic on them would take long."""

# Possessive quantifiers (`++`, `*+`) and atomic groups (`(?>`) never backtrack, which keeps the search linear on
# hostile text. Before Python 3.11.5 a possessive quantifier of a whole group goes wrong where an attempt at the group
# fails amid it (CPython issue 106052), so groups are atomic instead.
_DECIMAL = r"(?>(?:[0-9]{1,3}(?>(?:,[0-9]{3}(?![0-9]))+)|[0-9]++)(?>(?:\.[0-9]*+)?)|\.[0-9]++)"
_NUMBER = re.compile(
    r"[ ([{$*]*+(?P<sign>[-+]?) ?[($]*(?P<number>"
    rf"(?P<whole>[0-9]*+) ?\\frac\{{ ?(?P<top>-?{_DECIMAL}) ?\}} ?\{{ ?(?P<bottom>-?{_DECIMAL}) ?\}}|"
    rf"(?P<over>{_DECIMAL}) */ *(?P<under>{_DECIMAL})|"
    rf"(?:(?P<factor>{_DECIMAL}) ?(?:\\times|\\cdot|\*) ?)?\{{?10\}}? ?\^ ?[{{(]? ?"
    r"(?P<power>[-+]?[0-9]{1,3}) ?(?![0-9])[)}]?|"
    rf"(?P<decimal>{_DECIMAL}))"
)
_BEHIND = re.compile(  # what may follow a number
    r"(?: ?\\?%)?[)}\] $*.]*(?!(?:and|or)\b)(?:$|(?<![0-9])\(?[A-Za-z]{2}|[A-Za-z]{3}|(?:st|nd|rd|th|am|pm)\b|"
    r"\^\{? *(?:\\circ|st|nd|rd|th))"
)
_OPERATED = re.compile(r"(?<![\^{])[-+*/<>:] *[0-9({]|(?<!\^)(?<!\^\{)\\[A-Za-z]")  # behind a unit or words
_MORE = re.compile(r"(?<![\w^])(?<!\^\{)(?<!\^\{-)(?<!\^-)[0-9]")  # no exponent of a unit
_NAME = re.compile(r"[\s$({]*(?:[A-Za-z]\w*\s*)?")


@dataclass(frozen=True)
class NumberVerifier:
    """Exact equality of the final number; see the module's description for how it is read."""

    def rewards(self, answer: str, texts: Sequence[str]) -> list[float]:
        """1.0 for each completion whose final number equals ``answer``, else 0.0.

        Raises ValueError if ``answer`` is not a number.
        """
        return self.grade([answer] * len(texts), texts)

    def grade(self, answers: Sequence[str], texts: Sequence[str], *, patient: bool = False) -> list[float]:
        """As `rewards`, each completion with its own ground truth; all are read in linear time, patient or not."""
        truths = {answer: _whole(answer) for answer in dict.fromkeys(answers)}
        for answer, truth in truths.items():
            if truth is None:
                raise ValueError(f"answer {answer!r} is not a number; grade this problem with another verifier.")
        return [float(_agrees(truths[answer], _final(text))) for answer, text in zip(answers, texts, strict=True)]


@dataclass(frozen=True)
class _Found:
    value: Fraction
    unit: str | None


def final_number(text: str) -> Fraction | None:
    r"""The final number of a completion; None if it has none.

    Examples
    --------
    >>> final_number("3 boxes of 4 make 12. The answer is 12 apples, not 15.")
    Fraction(12, 1)
    >>> final_number("**$1,234.50** in all")
    Fraction(2469, 2)
    >>> final_number("9**9**9**9") is None, final_number(r"\boxed{42 \text{ or } 43}") is None
    (True, True)
    """
    found = _final(text)
    return None if found is None else found.value


def read_number(text: str) -> Fraction | None:
    r"""The number that ``text`` is, units and signs of currency aside; None if it is none or more than one.

    Examples
    --------
    >>> read_number("$ 70,000"), read_number("-3/4"), read_number(r"3\times10^{8}")
    (Fraction(70000, 1), Fraction(-3, 4), Fraction(300000000, 1))
    >>> [read_number(text) for text in ("2 + 2", "x>2", r"\pm 3", "52_8", "3!", "5x")]
    [None, None, None, None, None, None]
    """
    found = _whole(text)
    return None if found is None else found.value


def _agrees(truth: _Found, found: _Found | None) -> bool:
    return found is not None and found.value == truth.value and not units_differ(found.unit, truth.unit)


def _final(text: str) -> _Found | None:
    """The first of the numbers between which a completion leaves the choice; None where it leaves one."""
    choice = [_read(each) for each in passages(text, holding="[0-9]")]
    if not choice or None in choice:
        return None
    first = choice[0]
    same = all(each.value == first.value or units_differ(each.unit, first.unit) for each in choice)
    return first if same else None


def _whole(text: str) -> _Found | None:
    name, equals, passage = plain(text[-MAX_CHARACTERS:]).strip().rpartition("=")
    match = _NUMBER.match(passage)
    if match is None or (equals and not _NAME.fullmatch(name)) or _MORE.search(passage, match.end()):
        return None
    return _read(passage)


def _read(passage: str) -> _Found | None:
    """The number that a formula is, behind its last equals sign; words may follow it."""
    passage = unwrapped(passage.rpartition("=")[2])
    match = _NUMBER.match(passage)
    if match is None or len(match["number"]) > MAX_NUMBER_CHARACTERS:
        return None
    unit = unit_after(passage[match.end() :])
    if _OPERATED.search(passage, match.end()) or not (unit or _BEHIND.match(passage, match.end())):
        return None
    value = _value({name: (part or "").replace(",", "") for name, part in match.groupdict().items()})
    return None if value is None else _Found(-value if match["sign"] == "-" else value, unit)


def _value(parts: dict[str, str]) -> Fraction | None:
    if bottom := parts["bottom"] or parts["under"]:
        top = Fraction(parts["top"] or parts["over"])
        return int(parts["whole"] or 0) + top / Fraction(bottom) if Fraction(bottom) else None
    if parts["power"]:
        return Fraction(parts["factor"] or 1) * Fraction(10) ** int(parts["power"])
    return Fraction(parts["decimal"])
