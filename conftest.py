"""Doctests of the adapters are collected where their framework is installed, since they import it."""

from importlib.util import find_spec

NEEDS = {
    "trl": ("kaestat/integrations/trl",),
    "verl": ("kaestat/integrations/verl", "llm_experiments/training/verl/snapshots.py"),
}
collect_ignore = [path for name, paths in NEEDS.items() if find_spec(name) is None for path in paths]
