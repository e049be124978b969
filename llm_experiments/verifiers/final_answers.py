"""Where in a completion its final answer stands. Everything here takes time linear in the text."""

import re

from .alternatives import alternatives
from .spelling import plain
from .units import unit_words

MAX_CHARACTERS = 20_000
"""Characters of a completion that are looked at, from its end: the answer comes last."""

_BRACES = re.compile(r"(?P<box>\\(?:boxed|fbox)\s*\{)|\\.|(?P<open>\{)|(?P<close>\})", re.DOTALL)
_EXCLAIMED = re.compile(r"!(?=\s+[A-Z]|\s*$)")
_SENTENCE_END = re.compile(r"[.?](?:\s|$)")
# A formula is taken as a whole, so that no operand is taken for the answer. It consists of signs, numbers, commands,
# letters that stand alone or beside a number, and names of functions. Spaces are within it only beside a sign or a
# command, or in brackets: of "5 a day" it is 5.
_LETTER = r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])"
_GROUP = rf"(?:[(\[]|\\\{{)(?>(?:[^][()A-Za-z\\$\n]|\\[A-Za-z]++|{_LETTER})*)(?:[)\]]|\\\}})"
_CHUNK = (
    rf"(?>(?:\\text\w*+ ?\{{[^{{}}]*+\}} ?|\\[A-Za-z]++ ?|{_GROUP}|\\[{{}}%|]|[][0-9(){{}}|.%!'^_+*/=<>-]|"
    rf",(?=[0-9]{{3}}(?![0-9]))|:(?=[0-9{{(]| [0-9])|(?<=[0-9)}}])[A-Za-z]{{1,3}}(?![A-Za-z])|{_LETTER}|"
    r"(?<![A-Za-z\\])[A-Za-z]++(?=\())+)"
)
_SPACE = r" (?:(?=[-+*/^_=<>\\{]|: [0-9])|(?<=[-+*/^_=<>] )|(?<= : )|(?<=[0-9] )(?=[b-hj-z](?![A-Za-z'.])))"
_FORMULA = re.compile(
    r"\$\$?([^$]{1,500}+)\$|\\\((.{1,500}?)\\\)|\\\[(.{1,500}?)\\\]|"
    rf"(?![,;]|\\text|[.:](?![0-9])|[-+*/=<>^_] ){_CHUNK}(?>(?:{_SPACE}{_CHUNK})*)",
    re.DOTALL,
)
_MONEY = re.compile(r"\s*[0-9][0-9,.]*+[;:)]?\s+[A-Za-z]{2,}")  # what stands between the signs of two amounts
_LIST = re.compile(
    r"(?=\s*[,;ao\\])\s*[,;]?\s*(?:\\text\w*\{)?\s*(?P<word>and|or|)\s*\}?\s*"
)  # what joins its elements
_TIGHT = re.compile(r"(?P<word>),")
_START = re.compile(r"^(?:[ */^_=,:;']|\.(?![0-9]))+")
_MEANS = re.compile(r"[0-9]|\\[A-Za-z]|[A-Za-z)] ?[-+*/^=<>]")  # what a formula has one of
_COMPUTED = re.compile(r"[^=]*[0-9][^=]*=")  # "..., or 20 - 4 = 16"
_NAME = re.compile(r"[A-Za-z]+(?:\([A-Za-z]\))?")  # "the largest $n$ is 34"
_ANSWER_IS = re.compile(r"\banswer(?: is|:)", re.IGNORECASE)


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}`` or ``\fbox{...}`` that closes and is not empty, the outermost where nested.

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
            if start is not None and text[start : token.start()].strip():
                last = (start, token.start())
    return None if last is None else text[last[0] : last[1]]


def after_hashes(text: str) -> str | None:
    """The rest of the line after the last ``####`` (GSM8K's mark of its answers); None without one."""
    _, mark, rest = text.rpartition("####")
    return _line(rest) if mark else None


def after_answer_is(text: str) -> str | None:
    """The rest of the line after the last "answer is" or "answer:"; None without one."""
    ends = [found.end() for found in _ANSWER_IS.finditer(text)]
    return _line(text[ends[-1] :]) if ends else None


def passages(completion: str, *, several: bool = False, holding: str = "") -> list[str]:
    r"""The answers between which a completion leaves the choice; one where it does not, and none without an answer.

    It stands in the last box, behind the last ``####`` or "answer is", or last in the text. With ``several`` a list is
    one answer. Only passages with the pattern ``holding`` count.

    Examples
    --------
    >>> passages("It is 3 + 5 = 8. The answer is 8 apples or 9, not 10."), passages("so x = 5")
    (['8', '9'], ['x = 5'])
    """
    text = plain(completion[-MAX_CHARACTERS:])
    box, hashes = last_boxed(text), after_hashes(text)
    text = _EXCLAIMED.sub(".", text)
    sentence = _SENTENCE_END.split(after_answer_is(text) or "")[0]
    if box is not None and re.search(holding, box):
        return [box] if several else alternatives(box)
    for said, joint in ((hashes, _LIST), (sentence, _TIGHT)):
        if said and (found := _choice(said, 0, joint, holding, several=several)):
            return found
        if said and len(said.split()) == 1 and re.search(holding, said):
            return [said.strip(" *")]
    choices = (_choice(each, -1, None, holding, several=several) for each in reversed(_SENTENCE_END.split(text)))
    return next(filter(None, choices), [])


def _choice(sentence: str, place: int, joint: re.Pattern | None, holding: str, *, several: bool) -> list[str]:
    """The first (0) or last (-1) formula of a sentence, and what it leaves the choice to if no other stands between."""
    parts = [sentence] if several else alternatives(sentence)
    joint = _LIST if several or len(parts) > 1 else joint
    found = [[each for each in formulas_in(part, joint) if re.search(holding, each)] for part in parts]
    found = [[each for each in formulas if not _NAME.fullmatch(each)] or formulas for formulas in found if formulas]
    choice = [each[place] for each in found]
    return (
        choice
        if len(choice) < 2 or (len(found[place]) == 1 and not _COMPUTED.match(choice[place]))
        else [choice[place]]
    )


def formulas_in(text: str, joint: re.Pattern | None = None) -> list[str]:
    r"""What in a text is mathematics, whether in dollars or not, with units; those with a ``joint`` between are one.

    Examples
    --------
    >>> formulas_in(r"12 apples, $x = 5$ and 2 \times 3 - y. But not a day! 7 cm")
    ['12', 'x = 5', '2 \\times 3 - y', '7 cm']
    """
    found: list[str] = []
    end = 0
    while match := _FORMULA.search(text, end):
        between, end = found and joint and joint.fullmatch(text, end, match.start()), match.end()
        inner = next(filter(None, match.groups()), "")
        if _MONEY.match(inner):
            found += formulas_in(inner)
            continue
        formula = _START.sub("", inner or match[0]).rstrip(" -+*/^_=<>.,:;'")
        if formula and (inner or _MEANS.search(formula)):
            unit = unit_words(text[end:])
            end += len(unit)
            if between:
                formula = found.pop() + (r" \text{ or } " if between["word"] == "or" else ", ") + formula
            found.append(formula + unit)
    return found


def _line(text: str) -> str:
    return text.lstrip().partition("\n")[0]
