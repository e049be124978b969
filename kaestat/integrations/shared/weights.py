"""Weights of completions that a user may request."""

from collections.abc import Sequence
from typing import Any

from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.scaling import check_weights_matter

LENGTH_ONLY = ("none", "length")  # of trainers that hand no logits on


def check_weights(
    estimator: AdvantageEstimator, weights: Any, choices: Sequence[str] = LENGTH_ONLY, *, option: str = "weights"
) -> None:
    """Raise a ValueError for weights that are unknown, missing, unusable for the method, or cancelled by it.

    ``choices`` are the weights that the trainer can give, of which the first is none; ``option`` is the user's name for
    them.
    """
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
