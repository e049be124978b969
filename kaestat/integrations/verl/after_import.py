"""Run a function right after another module has been imported."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def after_import(name: str, action: Callable[[], None]) -> None:
    """Call ``action`` right after the module ``name`` has been executed; at once if it already has."""
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Watch(name, action))


class _Watch(MetaPathFinder):
    """Notices the import of the module, lets the other finders find it, and runs the action after its execution."""

    def __init__(self, name: str, action: Callable[[], None]):
        self._name, self._action = name, action

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            loader: Any = None if spec is None else spec.loader
            if loader is not None:
                loader.exec_module = self._followed_by_action(loader.exec_module)
                return spec
        return None

    def _followed_by_action(self, execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        def exec_module(module: ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:  # a reload does not run it again
                sys.meta_path.remove(self)
                self._action()

        return exec_module
