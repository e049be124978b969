r"""One spelling of the same mathematics, for both verifiers."""

import re
import unicodedata

_SYMBOLS = str.maketrans(
    {"−": "-", "–": "-", "‐": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": r"\div ", "±": r"\pm "}
    | {"≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "∈": r"\in ", "∪": r"\cup ", "∅": r"\emptyset "}
    | {"π": r"\pi ", "∞": r"\infty ", "√": r"\sqrt ", "°": r"^\circ ", "→": "=", "⇒": "=", "⁄": "/"}
    | dict.fromkeys("€£¥₹")
)
_GAP = r"(?:,\\! ?|\{,\}|\\[,;! ]|[ ~])"  # between thousands; a comma alone may separate elements
_SEPARATED = re.compile(
    rf"(?<![\w.,^])[0-9]{{1,3}}{_GAP}[0-9]{{3}}(?>(?:(?:{_GAP}|,)[0-9]{{3}}){{0,30}})(?![0-9]| ?/|-[A-Za-z])"
)
_UNICODE = (  # before characters get their normal form
    (r"([⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+)", r"^{\1}"),
    (r"([₀₁₂₃₄₅₆₇₈₉₊₋]+)", r"_{\1}"),
    (r"(?<=[0-9])([¼½¾⅐-⅞↉])", r" \1"),
    (r"√\s*+([0-9]++)", r"\\sqrt{\1}"),
)
_LATEX = (
    ("[\u2190-\u22ff\u2a00-\u2aff]", r"\\operator "),  # other operators
    (r"<<[^<>\n]*>>|</?[a-z]{1,10}>", " "),  # sums of GSM8K, and tags
    (r"\\(?:left|right)(?![A-Za-z])", ""),
    (r"\\(?:displaystyle|q?quad)(?![A-Za-z])|(?<!\\)\\[,;:! ]|~", " "),
    (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
    (r"\\degree(?![A-Za-z])|\^\{ *\\circ *\}", r"^\\circ "),
    (r"\\\$|(?<=-)\$(?=[0-9.\\])", ""),
    (r"\\text\w*\{ ?percent ?\}|\bpercent\b", r"\\%"),
    (r"\\(?:text\w*|math(?:rm|bf|it|sf)|mbox)\{ *([-+]?[0-9][0-9.,/]*) *\}", r"\1"),
    (r"(?<=[\w)}])(?:\*\*(?=[\w({\\-])| ?\*\* ?(?=[0-9]))", "^"),
    (r"\*\*", ""),  # bold
    (r"(?<=[0-9)}]) ?[xX] ?(?=[0-9(])|\\ast(?![A-Za-z])", r"\\times "),
    (r"(?<![\w.^])([0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE]([-+]?[0-9]{1,3})(?!\w|\.[0-9])", r"\1\\times 10^{\2}"),
    (r"\\frac ?([0-9]) ?(?=[0-9{])", r"\\frac{\1}"),
    (r"(\\frac *\{[^{}]*\}) ?([0-9])", r"\1{\2}"),
    (r"(?<![\w.^/])([0-9]+) +([0-9]+)/([0-9]+)(?![\w/]|\.[0-9])", r"\1\\frac{\2}{\3}"),
    (r"(?<=[0-9])(?: ?% ?| ?\.{2,} ?| (?:mod|choose|C|P) )(?=[0-9])", r"\\operator "),
    (r"(?<![\\A-Za-z])(?:sqrt|log|ln|sin|cos|tan) ?(?=[0-9])", r"\\\g<0>"),
    (r"(\\log_(?:\{[^{}]*\}|\w)) +", r"\1"),
    (r"[-=]{1,2}>", "="),
    (r">=", r"\\ge "),
    (r"<=", r"\\le "),
    (r"(?<![0-9)])!=", r"\\ne "),
    (r"((?:[$(=,{#:]|\bis) *-) +(?=[0-9.\\])", r"\1"),
    (r"(?<=[ {]) +|(?<!\\) +(?=\})", ""),
)


def plain(text: str) -> str:
    r"""The text with LaTeX for Unicode, numbers without separators but commas, and one command where there are several.

    Examples
    --------
    >>> plain("−３×10⁸"), plain("6.02e23"), plain("3½"), plain("√17≤x₁"), plain(r"10\,000")
    ('-3\\times 10^{8}', '6.02\\times 10^{23}', '3\\frac{1}{2}', '\\sqrt{17}\\le x_{1}', '10000')
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _spelled(text, _UNICODE)).translate(_SYMBOLS)
    return _spelled(_SEPARATED.sub(lambda found: re.sub("[^0-9]+", "", found[0]), text), _LATEX)


def _spelled(text: str, spellings: tuple[tuple[str, str], ...]) -> str:
    for pattern, spelling in spellings:
        text = re.sub(pattern, spelling, text)  # compiled once: `re` keeps patterns
    return text
