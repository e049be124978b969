"""Tests of the verl adapter are collected where verl is installed, as in the environment of ``make test-verl``."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("verl") else ["test_*.py"]
