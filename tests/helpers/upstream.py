"""Trainers' own source, where a folder of it is given, and empty packages for what they import and the tests leave out.

``KAESTAT_UPSTREAM`` names a folder with checkouts: ``skyrl``, ``openrlhf``, ``slime``, ``rllm``, ``nemo-rl``; any may
be missing. Tests then find these packages as if they were installed (tests/integrations/conftest.py). Patches are
checked on ``trl`` and ``verl``.
"""

import importlib.machinery
import os
from pathlib import Path
from unittest.mock import MagicMock

PACKAGES = {  # folders with packages, in each checkout
    "skyrl": [".", "skyrl-gym"],
    "openrlhf": ["."],
    "slime": ["."],
    "rllm": ["."],
}


def checkout(project):
    """The folder of a project's source; None where there is none."""
    folder = os.environ.get("KAESTAT_UPSTREAM")
    return Path(folder, project) if folder and Path(folder, project).is_dir() else None


def package_folders():
    """Folders to import the projects' packages from."""
    found = [(checkout(project), folders) for project, folders in PACKAGES.items()]
    return [str(root / folder) for root, folders in found if root is not None for folder in folders]


class EmptyPackages:
    """A finder of packages that need GPUs to install; whatever is taken from them is a mock."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = MagicMock(name=spec.name)
        module.__path__, module.__spec__, module.__version__ = [], spec, "0"
        return module

    def exec_module(self, module):
        pass
