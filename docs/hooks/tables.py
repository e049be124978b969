"""Hook of the site's build: what the code knows of methods and policies comes into pages, navigation and reference.

A page says where by a comment such as ``<!-- table: methods -->`` or ``<!-- modules: kaestat.baselines -->``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kaestat.baselines.base import Baseline
from kaestat.baselines.method import Method
from kaestat.baselines.registry import METHODS
from kaestat.estimator.scaling import DEVIATION
from kaestat.sampling.policies import POLICIES

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

MARK = re.compile(r"^<!-- (table|modules): ([\w.]+) -->$", re.MULTILINE)
ADVANTAGES = {
    "none": "as it is",
    "group_std": "over the group's standard deviation",
    "batch_std": "whitened over the batch",
    "informative": "times B / (B - M)",
}
DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)
DOCS = Path(__file__).parents[1]
OF_PAGE = {method.page: method for method in METHODS.values()}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of methods into the navigation; mkdocs calls it once."""
    for title, entries in list(_sections(config.nav or [])):
        if title == "Methods":
            entries[1:1] = [{method.name: f"methods/{method.page}.md"} for method in METHODS.values()]
    return config


def _sections(nav: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Title and entries of each section of the navigation, also of those within others."""
    for entry in nav:
        for title, below in entry.items() if isinstance(entry, dict) else ():
            if isinstance(below, list):
                yield title, below
                yield from _sections(below)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill in a page's marks and, on the page of a method, the table of its facts; mkdocs calls it for each."""
    folder, _, name = page.file.src_uri.removesuffix(".md").rpartition("/")
    if folder == "methods" and name in OF_PAGE:
        markdown = with_facts(markdown, OF_PAGE[name])
    return filled(markdown)


def filled(markdown: str) -> str:
    """A page with every mark replaced by what it stands for."""
    return MARK.sub(lambda mark: {"table": _table_of, "modules": directives}[mark[1]](mark[2]), markdown)


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, ("---",) * len(header), *rows))


def with_facts(markdown: str, method: Method) -> str:
    """The page of a method with the table of its facts before the first heading below the title."""
    kept, heading, rest = markdown.partition("\n## ")
    facts = facts_of(method)
    return f"{kept}\n{table(tuple(facts), [tuple(facts.values())])}\n{heading}{rest}"


def facts_of(method: Method) -> dict[str, str]:
    """What is known of a method at its defaults, as the cells of a table."""
    cls = method.baseline
    return {
        "looks back": looks_back(method.default),
        "own reward": "included" if method.default.includes_own else "left out",
        "weights": "yes" if method.default.takes_weights else "no",
        "advantage": f"over {method.divisor}" if method.scale == DEVIATION else ADVANTAGES[method.scale],
        "class": f"[`{cls.__name__}`][{cls.__module__}.{cls.__name__}]",
    }


def looks_back(baseline: Baseline) -> str:
    """How far into the past a value reaches, in words."""
    horizon = baseline.horizon
    if baseline.initial_carry() is not None or (baseline.in_order_only and horizon == 0):
        return "the whole run"
    return "no" if horizon == 0 else "all visits" if horizon == math.inf else f"{horizon:g} steps"


def directives(package: str) -> str:
    """A directive of the reference for each public module of a package that no page of the reference names."""
    named = {name for page in (DOCS / "reference").glob("*.md") for name in DIRECTIVE.findall(page.read_text())}
    folder = DOCS.parent / package.replace(".", "/")
    below = {path.relative_to(DOCS.parent).with_suffix("") for path in folder.rglob("*.py")}
    found = sorted(".".join(path.parts).removesuffix(".__init__") for path in below)
    return "\n\n".join(f"::: {name}" for name in found if name not in named and "._" not in name)


def _table_of(what: str) -> str:
    if what == "policies":
        rows = [(f"[`{name}`](policies.md)", policy.summary) for name, policy in POLICIES.items()]
        return table(("policy", "what it samples"), rows)
    header = ("method", "value, scaling, source", "take it where", "looks back", "order")
    return table(header, [_row(method) for method in METHODS.values()])


def _row(method: Method) -> tuple[str, ...]:
    told = "; ".join((method.summary, *method.remarks))
    return f"[`{method.name}`]({method.page}.md)", told, method.use, looks_back(method.default), method.order
