"""Sampling of prompts by their predicted values within a budget of completions, with corrections."""

from kaestat.sampling.allocation import allocate
from kaestat.sampling.draw import Draw
from kaestat.sampling.expected_noise import expected_noise
from kaestat.sampling.policies import POLICIES, Policy, make_policy
from kaestat.sampling.sampler import PromptSampler
from kaestat.sampling.systematic import systematic

__all__ = ["POLICIES", "Draw", "Policy", "PromptSampler", "allocate", "expected_noise", "make_policy", "systematic"]
