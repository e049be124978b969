"""What is compared, and how a method enters."""

from kaestat.baselines import Baseline
from kaestat.baselines.registry import FIXED_PARAMETERS, METHODS
from kaestat.logs.risk import risk_baseline

REWARDS_ALONE = tuple(name for name, method in METHODS.items() if method.needs is None)

# Their own reward is in the value for good, and gradient noise is not defined so.
NO_LEAVE_ONE_OUT = tuple(name for name in REWARDS_ALONE if METHODS[name].default.leave_one_out().includes_own)


def specified(name: str) -> str:
    """A method's specification, kernel methods at a fixed bandwidth."""
    return name + "".join(f":{key}={value:g}" for key, value in FIXED_PARAMETERS.get(name, {}).items())


def baseline_of(name: str) -> Baseline:
    """The baseline whose error stands for a method (`kaestat.value_risk`)."""
    return risk_baseline(specified(name))


def needs_a_group(name: str) -> bool:
    """Whether a method knows nothing without other completions of the group."""
    baseline = baseline_of(name)
    return name == "pooled" or (baseline.horizon == 0 and baseline.unit == "group" and baseline.initial_carry() is None)
