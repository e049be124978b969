"""Baseline (value) estimation for reinforcement learning of language models from verifiable rewards.

Names are imported when they are first used, so that `import kaestat` is quick, and the command line can take an
interrupt before NumPy and pandas are loaded.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kaestat.core.version import __version__ as __version__

if TYPE_CHECKING:  # the places of `_PLACES`, for type checkers; a test compares the two
    from kaestat.asynchronous.delta import HistoryDelta
    from kaestat.asynchronous.estimator import AsynchronousEstimator
    from kaestat.baselines.registry import make_baseline, methods
    from kaestat.baselines.workbench import check
    from kaestat.core.arrays import Groups, Visits
    from kaestat.estimator.advantage import AdvantageEstimator
    from kaestat.estimator.several_rewards import SeveralRewards, gdpo
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
    "AsynchronousEstimator",
    "Groups",
    "HistoryDelta",
    "Prior",
    "RewardHistory",
    "RewardLog",
    "SeveralRewards",
    "Visits",
    "check",
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
_PLACES = {
    "asynchronous.delta": ("HistoryDelta",),
    "asynchronous.estimator": ("AsynchronousEstimator",),
    "baselines.registry": ("make_baseline", "methods"),
    "baselines.workbench": ("check",),
    "core.arrays": ("Groups", "Visits"),
    "estimator.advantage": ("AdvantageEstimator",),
    "estimator.several_rewards": ("SeveralRewards", "gdpo"),
    "history.history": ("RewardHistory",),
    "history.prior": ("Prior",),
    "logs.gradient_risk": ("gradient_differences", "gradient_risk"),
    "logs.readers": ("read_log",),
    "logs.reward_log": ("RewardLog",),
    "logs.risk": ("risk_differences", "value_risk"),
    "logs.sampling_risk": ("sampling_risk",),
    "logs.selection": ("select_bandwidth",),
}
_MODULES = {name: f"kaestat.{module}" for module, names in _PLACES.items() for name in names}
_ROOMS = ("asynchronous", "baselines", "estimator", "history", "inference", "logs", "sampling", "smoothing", "theory")


if not TYPE_CHECKING:  # for a type checker every name would be there

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            globals()[name] = found = getattr(import_module(_MODULES[name]), name)
            return found
        if name in _ROOMS:
            return import_module(f"kaestat.{name}")
        raise AttributeError(f"module 'kaestat' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
