"""Baseline (value) estimation for reinforcement learning of language models from verifiable rewards."""

from kaestat.baselines.registry import make_baseline, methods
from kaestat.core.arrays import Groups, Visits
from kaestat.core.version import __version__ as __version__
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.several_rewards import SeveralRewards, gdpo
from kaestat.history.delta import HistoryDelta
from kaestat.history.history import RewardHistory
from kaestat.history.prior import Prior
from kaestat.logs.gradient_risk import gradient_differences, gradient_risk
from kaestat.logs.readers import read_log
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.risk import risk_differences, value_risk
from kaestat.logs.sampling_risk import sampling_risk
from kaestat.logs.selection import select_bandwidth

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
