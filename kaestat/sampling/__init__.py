"""Sampling of prompts by their predicted values within a budget of completions, with corrections."""

from kaestat.sampling.draw import Draw
from kaestat.sampling.expected_noise import expected_noise
from kaestat.sampling.policies import POLICIES, Ask, Policy, live_groups
from kaestat.sampling.sampler import PromptSampler

__all__ = ["POLICIES", "Ask", "Draw", "Policy", "PromptSampler", "expected_noise", "live_groups"]
