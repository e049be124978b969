"""Policies: language models that are sampled, scored and trained."""

from .base import Completion, Policy
from .loading import load_policy
from .presets import PRESETS, Preset

__all__ = ["PRESETS", "Completion", "Policy", "Preset", "load_policy"]
