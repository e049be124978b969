r"""Exact numbers: arithmetic and GSM8K.

A completion's answer is read by the first of these rules whose passage holds a number:

1. the last closed ``\boxed{...}``;
2. the line after the last ``####``;
3. the line after the last "answer is" or "answer:";
4. the whole text, of which the *last* number counts.

In the passages of rules 1-3 the *first* number after their last equals sign counts ("the answer is 3 + 5 = 8").

An answer that leaves the choice between numbers is none: ``42 or 43``, and in a box or after ``####`` also ``42, 43``
and ``42 and 43``. The same number in other words (``1/2 or 0.5``) or in another unit (``2 hours or 120 minutes``)
leaves no choice, and the first counts.

A number is an integer, a decimal, a fraction ``3/4``, ``\frac{3}{4}`` or ``\frac34``, or a mixed number of both, with
a sign, with commas between thousands, with a power of ten such as ``1.5e3``; signs of currency and percentage and units
are ignored, as GSM8K's ground truths leave them out; where both have one, another unit of measurement is another answer
(`units`). An expression such as ``3 + 5``, ``9**9``, ``2\sqrt{3}`` or ``10:00`` is not a number: it is never evaluated,
and no operand is taken for the answer. Comparison is exact, between fractions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from .alternatives import alternatives
from .final_answers import after_answer_is, after_hashes, last_boxed, last_match, tail
from .units import unit_after, units_differ, unwrapped

MAX_NUMBER_CHARACTERS = 200
"""Longer numbers are not read: no problem here has them, and arithmetic on them would take long."""

WINDOW = 200
"""Characters around a number in which another one can stand in its place."""

# Possessive quantifiers (`++`, `*+`) and atomic groups (`(?>`) never backtrack, which keeps the search linear on
# hostile text. Before Python 3.11.5 a possessive quantifier of a whole group goes wrong where an attempt at the group
# fails amid it (CPython issue 106052), so groups are atomic instead.
_DIGITS = r"(?:[0-9]{1,3}(?>(?:,[0-9]{3}(?![0-9]))+)|[0-9]++)"
_POWER = r"(?>(?:[eE][+-]?[0-9]{1,3}(?![0-9]))?)(?![eE][0-9]|\.[0-9])"
_DECIMAL = rf"(?:{_DIGITS}(?>(?:\.[0-9]++)?)|\.[0-9]++){_POWER}"
_BRACED = r"\{ ?+[0-9]++ ?+\}"
_FRAC = rf"\\[dt]?frac ?+(?:{_BRACED}|[0-9]) ?+(?:{_BRACED}|[0-9](?![0-9]))"
_MIX = rf"[0-9]++ ++(?=[0-9]++/[0-9])[0-9]++/[0-9]++|(?>(?:[0-9]++ ?+)?){_FRAC}"
_NUMBER = rf"(?>(?:[-+](?=[$€£.0-9\\]))?)[$€£]?+ ?+(?:{_MIX}|{_DECIMAL})"
_OPERATOR = r"(?:\*\*|[-+*/^×÷·]|:(?=[0-9])|\\times\b|\\cdot\b|\\div\b)"
_EXPRESSION = re.compile(
    rf"(?<![\w.^])(?<!\^\{{){_NUMBER}(?P<rest>(?>(?:%?+ *+{_OPERATOR} *+[({{]*+ *+{_NUMBER}[)}}]*+)*))", re.ASCII
)
_FRACTION = re.compile(rf"(?P<top>{_DECIMAL}) *+/ *+(?P<bottom>{_DECIMAL})", re.ASCII)
_MIXED = re.compile(r"(?P<whole>[0-9]++) ++(?P<top>[0-9]++)/(?P<bottom>[0-9]++)", re.ASCII)
_LATEX_FRACTION = re.compile(
    r"(?:(?P<whole>[0-9]+) ?)?\\[dt]?frac ?\{? ?(?P<top>[0-9]+) ?\}? ?\{? ?(?P<bottom>[0-9]+) ?\}?", re.ASCII
)
_FUNCTION = r"\\(?:sqrt|[dt]?frac|[dt]?binom)"
_WITHIN, _BESIDE = (
    re.compile(_FUNCTION + r" ?(?:\{[^{}]{0,20}\} ?)?\{? ?$"),
    re.compile(rf" ?(?:{_FUNCTION}|\\pi(?![A-Za-z]))"),
)
_SEPARATOR = re.compile(r"\s*(?:[,;&]|\\pm|\band\b)(?=\s*[-+$]?[0-9.\\])")
_STILL_THE_ANSWER = re.compile(rf"(?>(?:\s*,\s*{_NUMBER})*)[^0-9.!?\n]*", re.ASCII)  # a list, words, a unit
_SHORT = re.compile(r"[^.!?\n]{0,40}")  # "perhaps", "x =": no new sentence
_WORD = re.compile(r"\s*([A-Za-z]{2,})")
_SPELLINGS = (("{,}", ","), (r"\,", ""), (r"\!", ""), (r"\$", "$"), (r"\%", "%"), ("−", "-"), ("–", "-"))


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
        truths = {answer: self._truth(answer) for answer in dict.fromkeys(answers)}
        return [float(_agrees(truths[answer], text)) for answer, text in zip(answers, texts, strict=True)]

    @staticmethod
    def _truth(answer: str) -> _Found:
        value = read_number(answer)
        if value is None:
            raise ValueError(f"answer {answer!r} is not a number; grade this problem with another verifier.")
        text = _plain(tail(answer))
        return _Found(value, unit_after(unwrapped(text[next(_EXPRESSION.finditer(text)).end() :])))


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


def _agrees(truth: _Found, text: str) -> bool:
    found = _final(text)
    return found is not None and found.value == truth.value and not units_differ(found.unit, truth.unit)


def _final(text: str) -> _Found | None:
    text = _plain(tail(text))
    for passage, listed in ((last_boxed(text), True), (after_hashes(text), True), (after_answer_is(text), False)):
        if passage is not None and _EXPRESSION.search(passage.rpartition("=")[2]):
            return _chosen(passage, listed=listed)
    found = last_match(_EXPRESSION, text)
    if found is None:
        return None
    window = text[max(0, found.start() - WINDOW) : found.end()]
    before = list(_EXPRESSION.finditer(window))[-2:-1]
    if (
        before
        and len(alternatives(between := window[before[0].start() :])) > 1
        and _chosen(between, listed=False) is None
    ):
        return None
    return _found(found, text[found.end() :])


def _chosen(passage: str, *, listed: bool) -> _Found | None:
    """The number that a passage names; None where that is an expression, or one of several numbers."""
    parts = alternatives(unwrapped(passage))
    place, match = next(
        (place, match) for place, part in enumerate(parts) if (match := _EXPRESSION.search(part.rpartition("=")[2]))
    )
    rest = match.string[match.end() :]
    found, separator = _found(match, rest), _SEPARATOR.match(rest)
    if found is None or (listed and separator and _differs(found, rest[separator.end() :])):
        return None
    follows = parts[place + 1] if place + 1 < len(parts) and _STILL_THE_ANSWER.fullmatch(rest) else ""
    return None if _differs(found, follows, rest) else found


def _differs(found: _Found, follows: str, words: str = "") -> bool:
    """Whether another number than ``found`` begins what follows it; ``words`` stand between the two."""
    match = _EXPRESSION.search(follows[:WINDOW])
    if match is None or not _SHORT.fullmatch(follows[: match.start()]):
        return False
    other, behind = _value(match), follows[match.end() :]
    if other is None and "=" in behind:
        return _differs(found, behind.partition("=")[2], words)
    mine, theirs = _WORD.match(words), _WORD.match(behind)
    converted = mine and theirs and mine[1].lower().rstrip("s") != theirs[1].lower().rstrip("s")
    return not converted and other != found.value and not (behind.startswith("%") and other == 100 * found.value)


def read_number(text: str) -> Fraction | None:
    """The number that ``text`` is, units and signs of currency aside; None if it is none or more than one.

    Examples
    --------
    >>> read_number("$ 70,000"), read_number("-3/4"), read_number("2 + 2")
    (Fraction(70000, 1), Fraction(-3, 4), None)
    """
    found = list(_EXPRESSION.finditer(_plain(tail(text))))
    return _value(found[0]) if len(found) == 1 else None


def _plain(text: str) -> str:
    for spelled, plain in _SPELLINGS:
        text = text.replace(spelled, plain)
    return text


def _found(match: re.Match, behind: str) -> _Found | None:
    value = _value(match)
    return None if value is None else _Found(value, unit_after(behind))


def _value(match: re.Match) -> Fraction | None:
    """Value of a matched expression; None unless it is one number, or one fraction of two."""
    text, whole = match[0], match.string
    if len(text) > MAX_NUMBER_CHARACTERS:
        return None
    if _WITHIN.search(whole[max(0, match.start() - 40) : match.start()]) or _BESIDE.match(whole, match.end()):
        return None
    sign = -1 if text.startswith("-") else 1
    text = re.sub(r"[$€£,]", "", text.lstrip("+-")).strip()
    rational = _MIXED.fullmatch(text) or _LATEX_FRACTION.fullmatch(text) or _FRACTION.fullmatch(text)
    if rational:
        bottom = Fraction(rational["bottom"])
        whole = int(rational.groupdict().get("whole") or 0)
        return sign * (whole + Fraction(rational["top"]) / bottom) if bottom else None
    return None if match["rest"] else sign * Fraction(text)
