"""Verifiers: whether a completion's final answer equals the ground truth."""

from .base import Verifier
from .numbers import NumberVerifier, final_number, read_number

__all__ = ["NumberVerifier", "Verifier", "final_number", "read_number"]
