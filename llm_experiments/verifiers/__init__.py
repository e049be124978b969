"""Verifiers: whether a completion's final answer equals the ground truth."""

from .mathematics import MathVerifier
from .numbers import NumberVerifier, final_number, read_number

__all__ = ["MathVerifier", "NumberVerifier", "final_number", "read_number"]
