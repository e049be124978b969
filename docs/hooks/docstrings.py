"""Docstrings as Markdown: what numpydoc writes in reStructuredText's way, and links for the names in backticks."""

import re
from typing import Any

import griffe

NAME = re.compile(r"(?<![`\[\w])`([A-Za-z_][\w.]*)(\(\))?`(?![`\]])")
LITERAL_BLOCK = re.compile(r"::(?=\n\n[ \t]+\S)")
LONELY_COLONS = re.compile(r"^[ \t]*::[ \t]*\n", re.MULTILINE)
# Types of parameters that happen to be Python, and would be shown as the expression that they are not.
CHOICES = re.compile(r"^([ \t]*[\w*, ]+ : )\{(.*?)\}", re.MULTILINE)
SHAPE = re.compile(r"^([ \t]*(?:[\w*, ]+ : )?[\w ]*array), shape (?=\()", re.MULTILINE)


class NumpydocMarkup(griffe.Extension):
    """Rewrites every docstring of the package once it is loaded.

    ``a::`` before an indented block loses a colon, types are put into words, and a name in single backticks that the
    reference documents becomes a link to it.
    """

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite the docstrings below the package; griffe calls it."""
        for item in walk(pkg):
            if item.docstring is not None:
                item.docstring.value = self.markdown(item, item.docstring.value)

    def markdown(self, item: griffe.Object, text: str) -> str:
        """The docstring's text in Markdown."""
        text = LITERAL_BLOCK.sub(":", LONELY_COLONS.sub("", text))
        text = SHAPE.sub(r"\1 of shape ", CHOICES.sub(r"\1one of \2", text))
        return NAME.sub(lambda match: self._link(item, match), text)

    def _link(self, item: griffe.Object, match: re.Match[str]) -> str:
        target = find(item, match[1])
        if target is None or target.path == item.path or not documented(target):
            return match[0]
        return f"[`{match[1]}{match[2] or ''}`][{target.path}]"


def walk(item: griffe.Object) -> list[griffe.Object]:
    """The item and everything defined below it."""
    below = [member for member in item.members.values() if not member.is_alias]
    return [item, *(found for member in below for found in walk(member))]


def find(item: griffe.Object, name: str) -> griffe.Object | None:
    """What a name in this item's docstring stands for: a full path, or a name of its class or module."""
    package = item.package
    scopes = [scope for scope in (item, item.parent, item.module, package) if scope is not None]
    for scope in scopes:
        path = name.removeprefix(f"{package.name}.") if scope is package else name
        try:
            found = scope[path]
            return found.final_target if found.is_alias else found
        except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
            continue
    return None


def documented(item: griffe.Object) -> bool:
    """Whether the reference shows it under its own path."""
    hidden = any(part.startswith("_") for part in item.path.split("."))
    return bool(item.docstring) and not hidden and not (item.is_attribute and "property" not in item.labels)
