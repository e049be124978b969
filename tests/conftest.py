"""Hypothesis is deterministic everywhere; helpers that need a framework are imported where it is installed."""

from importlib.util import find_spec

from hypothesis import settings

settings.register_profile("kaestat", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("kaestat")

needs = {"trl": ["helpers/tiny_trl.py", "helpers/two_ranks.py"], "verl": ["helpers/tiny_verl.py"]}
collect_ignore = [file for framework, files in needs.items() if not find_spec(framework) for file in files]
