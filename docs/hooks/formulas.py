r"""Formulas as MathML, which browsers draw by themselves: no script and no font is loaded.

Pages write ``\(x\)`` within a line and ``\[x\]`` on lines of their own; the extension ``pymdownx.arithmatex`` marks
them, and this hook of the site's build translates what it marked.
"""

import html
import re
from typing import Any

from latex2mathml.converter import convert

MARKED = re.compile(r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL)


def on_page_content(page_html: str, **_: Any) -> str:
    """Translate the formulas of a page; mkdocs calls it for each."""
    return MARKED.sub(_mathml, page_html)


def _mathml(match: re.Match[str]) -> str:
    block = match["tag"] == "div"
    latex = html.unescape(match["latex"]).strip()
    formula = convert(latex, display="block" if block else "inline")
    if "\\" in formula:  # latex2mathml hands on what it does not know
        raise ValueError(f"formula {latex}: a command in it is not known to latex2mathml.")
    return f'<div class="formula">{formula}</div>' if block else formula
