"""The hooks of the site's build, as modules."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def hook(name: str, folder: str = "hooks") -> ModuleType:
    """A module from a folder of the documentation, imported as mkdocs does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS / folder)
        return sys.modules.get(name) or importlib.import_module(name)
