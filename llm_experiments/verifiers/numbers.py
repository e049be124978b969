r"""Exact numbers: arithmetic and GSM8K.

A completion's answer is read by the first of these rules whose passage holds a number:

1. the last closed ``\boxed{...}``;
2. the line after the last ``####``;
3. the line after the last "answer is" or "answer:";
4. the whole text, of which the *last* number counts.

In the passages of rules 1-3 the *first* number after their last equals sign counts ("the answer is 3 + 5 = 8").

A number is an integer, a decimal, a fraction ``3/4`` or ``\frac{3}{4}``, or a mixed number ``1 1/2``, with a sign, with
commas between thousands, with a power of ten such as ``1.5e3``; signs of currency and percentage and units are passed
over, as GSM8K's ground truths leave them out. An expression such as ``3 + 5`` or ``9**9`` is no number: it is never
evaluated, and none of its operands is taken for the answer. Comparison is exact, between fractions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from .final_answers import after_answer_is, after_hashes, last_boxed, last_match, tail

MAX_NUMBER_CHARACTERS = 200
"""Longer numbers are not read: no problem here has them, and arithmetic on them would take long."""

# Possessive quantifiers (`++`, `*+`) never backtrack, which is what keeps the search linear on hostile text.
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3}(?![0-9]))++|[0-9]++)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.[0-9]++)?+|\.[0-9]++)(?:[eE][+-]?[0-9]{{1,3}}(?![0-9]))?+(?![eE][0-9]|\.[0-9])"
_FRAC = r"\\[dt]?frac ?+\{ ?+[0-9]++ ?+\} ?+\{ ?+[0-9]++ ?+\}"
_NUMBER = rf"(?:[-+](?=[$€£.0-9\\]))?+[$€£]?+ ?+(?:[0-9]++ ++(?=[0-9]++/[0-9])[0-9]++/[0-9]++|{_FRAC}|{_DECIMAL})"
_OPERATOR = r"(?:\*\*|[-+*/^×÷·]|\\times\b|\\cdot\b|\\div\b)"
_EXPRESSION = re.compile(
    rf"(?<![\w.^])(?<!\^\{{){_NUMBER}(?P<rest>(?:%?+ *+{_OPERATOR} *+[({{]*+ *+{_NUMBER}[)}}]*+)*+)", re.ASCII
)
_FRACTION = re.compile(rf"(?P<top>{_DECIMAL}) *+/ *+(?P<bottom>{_DECIMAL})", re.ASCII)
_MIXED = re.compile(r"(?P<whole>[0-9]++) ++(?P<top>[0-9]++)/(?P<bottom>[0-9]++)", re.ASCII)
_LATEX_FRACTION = re.compile(r"\\[dt]?frac ?\{ ?(?P<top>[0-9]+) ?\} ?\{ ?(?P<bottom>[0-9]+) ?\}", re.ASCII)
_SPELLINGS = (("{,}", ","), (r"\,", ""), (r"\!", ""), (r"\$", "$"), (r"\%", "%"), ("−", "-"), ("–", "-"))


@dataclass(frozen=True)
class NumberVerifier:
    """Exact equality of the final number; see the module's description for how it is read."""

    def rewards(self, answer: str, texts: Sequence[str]) -> list[float]:
        """1.0 for each completion whose final number equals ``answer``, else 0.0.

        Raises
        ------
        ValueError
            If ``answer`` is no number.
        """
        truth = read_number(answer)
        if truth is None:
            raise ValueError(f"answer {answer!r} is no number; grade this problem with another verifier.")
        return [float(final_number(text) == truth) for text in texts]


def final_number(text: str) -> Fraction | None:
    r"""The final number of a completion; None if it has none.

    Examples
    --------
    >>> final_number("3 boxes of 4 make 12. The answer is 12 apples, not 15.")
    Fraction(12, 1)
    >>> final_number("**$1,234.50** in all")
    Fraction(2469, 2)
    >>> final_number("9**9**9**9") is None
    True
    """
    text = _plain(tail(text))
    for passage in (last_boxed(text), after_hashes(text), after_answer_is(text)):
        found = None if passage is None else _EXPRESSION.search(passage.rpartition("=")[2])
        if found:
            return _value(found)
    found = last_match(_EXPRESSION, text)
    return None if found is None else _value(found)


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


def _value(match: re.Match) -> Fraction | None:
    """Value of a matched expression; None unless it is one number, or one fraction of two."""
    text = match[0]
    if len(text) > MAX_NUMBER_CHARACTERS:
        return None
    sign = -1 if text.startswith("-") else 1
    text = re.sub(r"[$€£,]", "", text.lstrip("+-")).strip()
    rational = _MIXED.fullmatch(text) or _LATEX_FRACTION.fullmatch(text) or _FRACTION.fullmatch(text)
    if rational:
        bottom = Fraction(rational["bottom"])
        whole = int(rational.groupdict().get("whole") or 0)
        return sign * (whole + Fraction(rational["top"]) / bottom) if bottom else None
    return None if match["rest"] else sign * Fraction(text)
