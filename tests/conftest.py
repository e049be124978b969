"""Hypothesis is deterministic everywhere; this file also puts ``tests`` on the path, for the helpers beside it."""

from hypothesis import settings

settings.register_profile("kaestat", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("kaestat")
