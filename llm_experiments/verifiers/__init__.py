"""Verifiers: whether a completion's final answer equals the ground truth."""

from .base import Verifier
from .mathematics import MathVerifier
from .numbers import NumberVerifier, final_number, read_number

__all__ = ["MathVerifier", "NumberVerifier", "Verifier", "final_number", "read_number"]
