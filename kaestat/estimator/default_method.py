"""The method of an estimator for which none is named."""

from __future__ import annotations

import warnings
from dataclasses import replace

from kaestat.baselines.registry import DEFAULT_METHOD, SECOND_METHOD
from kaestat.core.samples import StepSamples
from kaestat.estimator.held_state import Held
from kaestat.estimator.stored import opening


def default_for(order: str) -> str:
    """The method where none is named, with a warning where the default cannot serve."""
    if order != "any":
        return DEFAULT_METHOD
    warnings.warn(_taken_over('order="any"'), stacklevel=3)
    return SECOND_METHOD


def handed_over(held: Held, samples: StepSamples) -> tuple[Held, tuple[str, ...]]:
    """What is held, with `SECOND_METHOD` where the default cannot serve the first samples, and a warning then."""
    if samples.weighting == "none" or held.state.history is not None or not held.plan.is_default:
        return held, ()
    plan = held.plan.with_second_method()
    state = replace(held.state, carry=plan.serving.baseline.initial_carry())
    return opening(state, plan), (_taken_over(f"completions come with {samples.weighting.replace('+', ' and ')}"),)


def _taken_over(reason: str) -> str:
    return (
        f"method: none is named, and the default, {DEFAULT_METHOD!r}, cannot serve here ({reason}); "
        f"{SECOND_METHOD!r} takes its place. Name a method to choose it."
    )
