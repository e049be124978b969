"""Tests of the vLLM policy are collected where vLLM is installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("vllm") else ["test_vllm.py"]
