"""What a method needs of a trainer: a history's ids, groups of several completions, and weights that it can use."""

from collections.abc import Sequence
from typing import Any

from kaestat.baselines.base import Baseline
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.notices import needs_others
from kaestat.estimator.scaling import check_weights_matter

LENGTH_ONLY = ("none", "length")  # of trainers that pass no logits on


def looks_back(baseline: Baseline) -> bool:
    """Whether a baseline's values depend on earlier steps, so it needs stable ids, the step and checkpoints."""
    return baseline.horizon > 0 or baseline.initial_carry() is not None


def check_group_size(estimator: AdvantageEstimator, name: str, size: int) -> None:
    """Raise a ValueError if groups of ``size`` completions are too small for a method; ``name`` is the option."""
    why = needs_others(estimator.method, estimator.baseline, size)
    if why is not None and estimator.baseline.unit == "group":
        raise ValueError(f"{name}={size}: {why}")


def check_weights(
    estimator: AdvantageEstimator, weights: Any, choices: Sequence[str] = LENGTH_ONLY, *, option: str = "weights"
) -> None:
    """Raise a ValueError for weights that are not in ``choices`` (the first is none) or unfit for the method."""
    baseline, method = estimator.baseline, estimator.method
    if not (isinstance(weights, str) and weights in choices):
        raise ValueError(f"{option}: unknown {weights!r}; choose one of {', '.join(choices)}.")
    none, *some = choices
    if weights == none and baseline.needs_weights:
        raise ValueError(
            f"{option}={weights}: method {method!r} averages by weights of completions; choose {' or '.join(some)}."
        )
    if weights != none:
        check_weights_matter(f"{option}={weights}", method, baseline, estimator.scale)
