"""The method of an estimator for which none is named."""

from __future__ import annotations

import warnings
from dataclasses import replace

from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import DEFAULT_METHOD, SECOND_METHOD, make_baseline
from kaestat.estimator.held_state import HoldsState
from kaestat.estimator.reach import ReturnWatch


class DefaultMethod(HoldsState):
    """The part of `kaestat.AdvantageEstimator` that replaces the default where it cannot serve."""

    method: str
    baseline: Baseline
    _by_default: bool

    def _hand_over(self, reason: str | None) -> None:
        """Take `SECOND_METHOD` from the first step on; with a warning unless the reason is None."""
        held = self.settle()
        if not self._by_default or self.method != DEFAULT_METHOD or held.state.history is not None:
            return
        self.method, self.baseline = SECOND_METHOD, make_baseline(SECOND_METHOD)
        state = replace(held.state, carry=self.baseline.initial_carry())
        self._swapped = held._replace(state=state, returns=ReturnWatch(self.method, self.baseline))
        if reason is not None:
            _say(reason)


def default_for(order: str) -> str:
    """The method where none is named, with a warning where the default cannot serve."""
    if order != "any":
        return DEFAULT_METHOD
    _say('order="any"')
    return SECOND_METHOD


def _say(reason: str) -> None:
    warnings.warn(
        f"method: none is named, and the default, {DEFAULT_METHOD!r}, cannot serve here ({reason}); "
        f"{SECOND_METHOD!r} takes its place. Name a method to choose it.",
        stacklevel=4,
    )
