"""Policies: language models that are sampled, scored and trained."""

from .base import Completion, Policy, SamplingSettings
from .loading import load_policy
from .presets import PRESETS, Preset

__all__ = ["PRESETS", "Completion", "Policy", "Preset", "SamplingSettings", "load_policy"]
