"""The API reference is complete: every public module has its place on a page, every public name a docstring."""

import re
from pathlib import Path

import griffe
import pytest

from tests.helpers.hooks import hook

ROOT = Path(__file__).parents[2]
DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def package() -> griffe.Module:
    return griffe.load("kaestat", search_paths=[ROOT], allow_inspection=False)


def is_public(name: str) -> bool:
    return not name.startswith("_")


def modules(module: griffe.Module) -> list[griffe.Module]:
    """The module and its public submodules."""
    below = [m for name, m in module.members.items() if is_public(name) and not m.is_alias and m.is_module]
    return [module, *(found for m in below for found in modules(m))]


def public_items(item: griffe.Object) -> list[griffe.Object]:
    """Public classes, functions, methods and properties below a module or class, without those of its submodules."""
    below = [m for name, m in item.members.items() if is_public(name) and not m.is_alias]
    shown = [m for m in below if m.is_class or m.is_function or "property" in m.labels]
    return [found for m in shown for found in ([m, *public_items(m)] if m.is_class else [m])]


def has_docstring(item: griffe.Object) -> bool:
    """Its own docstring, or that of the class that it overrides, or an entry of that class's attributes."""
    if item.docstring:
        return True
    if item.parent is None or not item.parent.is_class:
        return False
    bases = [item.parent, *item.parent.mro()]
    inherited = [base.members.get(item.name) for base in bases]
    entry = re.compile(rf"^(\w+, )*{item.name}(, \w+)* : ", re.MULTILINE)
    entries = [base.docstring for base in bases if base.docstring and entry.search(base.docstring.value)]
    return bool(entries) or any(member is not None and member.docstring for member in inherited)


def test_every_public_module_class_function_method_and_property_has_a_docstring(package):
    items = [found for module in modules(package) for found in (module, *public_items(module))]
    assert len(items) > 400
    assert [item.path for item in items if not has_docstring(item)] == []


def test_every_public_module_stands_once_in_the_reference_and_nothing_else_does(package):
    pages = sorted((ROOT / "docs" / "reference").glob("*.md"))
    shown = [path for page in pages for path in DIRECTIVE.findall(hook("tables").filled(page.read_text()))]
    assert sorted(shown) == sorted(module.path for module in modules(package))
