"""Trainers' source that `make test-upstream` names is importable, after all that is installed."""

import sys

from tests.helpers.upstream import package_folders

sys.path += [folder for folder in package_folders() if folder not in sys.path]
