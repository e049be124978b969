"""Modules under a trainer's names, for ``sys.modules``."""

import sys
import types


def add_module(found: dict[str, types.ModuleType], name: str, **content) -> types.ModuleType:
    """A new module with this content, added to ``found`` together with the packages around it."""
    parent, _, last = name.rpartition(".")
    if parent and parent not in found:
        add_module(found, parent)
    module = found[name] = types.ModuleType(name)
    module.__path__ = []
    module.__dict__.update(content)
    if parent:
        setattr(found[parent], last, module)
    return module


def put_in_place(monkeypatch, modules: dict[str, types.ModuleType]) -> None:
    """Let these modules be what is imported under their names, as long as the test runs."""
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
