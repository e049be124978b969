"""Baseline (value) estimation for reinforcement learning of language models from verifiable rewards."""

from kaestat.advantage import AdvantageEstimator
from kaestat.arrays import Groups, Visits
from kaestat.history import RewardHistory
from kaestat.registry import make_baseline, methods

__all__ = [
    "AdvantageEstimator",
    "Groups",
    "RewardHistory",
    "Visits",
    "make_baseline",
    "methods",
]
__version__ = "0.1.0.dev0"
