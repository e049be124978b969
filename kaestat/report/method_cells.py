"""Names of methods and policies in the tables of a page, each with its explanation, methods with a link."""

import re
from collections.abc import Iterable

from kaestat.baselines.registry import METHODS
from kaestat.report.html_page import Cell


def method_cell(shown: str) -> Cell:
    """The cell of a row whose name is a method's specification; plain text for a baseline of the user's own."""
    name = method_of(shown)
    if name is None:
        return Cell(shown)
    return Cell(shown, href=f"#{anchor(name)}", note=METHODS[name].summary)


def policy_cell(name: str) -> Cell:
    """The cell of a sampling policy, with its summary."""
    from kaestat.sampling.policies import POLICIES

    return Cell(name, note=POLICIES[name].summary)


def method_of(shown: str) -> str | None:
    """The method of a row; None for a baseline of the user's own."""
    name = re.split(r"[:\s]", shown, maxsplit=1)[0]
    return name if name in METHODS else None


def glossary(shown: Iterable[str]) -> list[tuple[str, str, str]]:
    """Anchor, name and summary of each method in some rows, in the order of the registry."""
    here = {method_of(row) for row in shown}
    return [(anchor(name), name, method.summary) for name, method in METHODS.items() if name in here]


def anchor(name: str) -> str:
    """The anchor at which a page explains a method."""
    return "method-" + name.replace("+", "-plus")
