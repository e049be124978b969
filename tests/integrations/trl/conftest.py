"""Tests of the TRL adapter are collected where TRL is installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("trl") else ["test_*.py"]
