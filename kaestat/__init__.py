"""Baseline (value) estimation for reinforcement learning of language models from verifiable rewards."""

from kaestat.advantage import AdvantageEstimator
from kaestat.arrays import Groups, Visits
from kaestat.history import RewardHistory
from kaestat.history_delta import HistoryDelta
from kaestat.logs.gradient_risk import gradient_differences, gradient_risk
from kaestat.logs.readers import read_log
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.risk import risk_differences, value_risk
from kaestat.logs.sampling_risk import sampling_risk
from kaestat.logs.selection import select_bandwidth
from kaestat.prior import Prior
from kaestat.registry import make_baseline, methods
from kaestat.several_rewards import SeveralRewards, gdpo

__all__ = [
    "AdvantageEstimator",
    "Groups",
    "HistoryDelta",
    "Prior",
    "RewardHistory",
    "RewardLog",
    "SeveralRewards",
    "Visits",
    "gdpo",
    "gradient_differences",
    "gradient_risk",
    "make_baseline",
    "methods",
    "read_log",
    "risk_differences",
    "sampling_risk",
    "select_bandwidth",
    "value_risk",
]
__version__ = "0.1.0.dev0"
