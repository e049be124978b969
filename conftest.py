"""Doctests of the adapters are collected where their framework is installed, since they import it."""

from importlib.util import find_spec

collect_ignore = [f"kaestat/integrations/{name}" for name in ("trl", "verl") if find_spec(name) is None]
