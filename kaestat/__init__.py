"""Baseline (value) estimation for reinforcement learning of language models from verifiable rewards."""

from kaestat.advantage import AdvantageEstimator
from kaestat.arrays import Groups, Visits
from kaestat.bandwidth.selection import select_bandwidth
from kaestat.history import RewardHistory
from kaestat.registry import make_baseline, methods
from kaestat.reward_log import RewardLog
from kaestat.risk import risk_differences, value_risk

__all__ = [
    "AdvantageEstimator",
    "Groups",
    "RewardHistory",
    "RewardLog",
    "Visits",
    "make_baseline",
    "methods",
    "risk_differences",
    "select_bandwidth",
    "value_risk",
]
__version__ = "0.1.0.dev0"
