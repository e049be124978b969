"""The state of an `AdvantageEstimator` between two steps, and its form in files and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.core.storage import decode_keys, encode_keys
from kaestat.estimator.steps.recent_scores import RecentScores, kept_visits
from kaestat.history.columns import HistoryWrite
from kaestat.history.fields import stored_step
from kaestat.history.history import RewardHistory
from kaestat.history.prior import Prior
from kaestat.history.received_deltas import Received
from kaestat.history.stored import snapshot

PARTS = {"method", "last_step", "carry", "history", "recorded", "with_streams"}


@dataclass(frozen=True, eq=False)
class EstimatorState:
    """Everything that an `AdvantageEstimator` knows about earlier steps."""

    carry: Any  # The baseline's state in addition to its history
    history: RewardHistory | None = None  # None before the first step, and for baselines without one
    last_step: int = -1  # The last step recorded; -1 before the first
    # Prompts of the last step, kept for baselines with a carry but no history
    recorded: dict[Hashable, None] = field(default_factory=dict)
    with_streams: bool | None = None  # Whether steps had stream ids; None while there is no history
    # Which of "weights" and "importance" completions had (`StepSamples`); None while unknown
    weighting: str | None = None
    # The priors with which the history will begin; empty once there is a history, which then holds their visits
    priors: tuple[Prior, ...] = ()
    # The number of steps for which the history keeps the past of late completions (`RewardHistory`)
    late: int | None = None
    received: Received = field(default_factory=Received)  # The numbered deltas that it holds, including its own
    # Where steps come in any order and a bandwidth is learned: scores of recent steps, which follow from the visits;
    # None while they are not known
    scores: RecentScores | None = None
    # Rows of the history that are still to be written (`kaestat.estimator.held_state.settle`)
    write: HistoryWrite | None = None

    @classmethod
    def first(cls, baseline: Baseline, late: int | None) -> EstimatorState:
        """The state before the first step; with ``late`` there is no carry (`of`)."""
        return cls(baseline.initial_carry() if late is None else None, late=late)

    def snapshot(self, method: str) -> Callable[[], dict[str, Any]]:
        """A function that returns the state as of now, as plain data and NumPy arrays (copies).

        The function raises a TypeError if a prompt id cannot be stored.
        """
        history = None if self.history is None else snapshot(self.history.columns)
        carry = None if self.carry is None else {name: np.array(a) for name, a in self.carry.items()}
        scores = {} if self.scores is None else {"scores": self.scores.plain()}

        def plain() -> dict[str, Any]:
            received = {"received": self.received.plain()} if self.received.newest else {}
            priors = {"priors": {str(n): prior.plain() for n, prior in enumerate(self.priors)}} if self.priors else {}
            return {
                "method": method,
                "last_step": self.last_step,
                "carry": carry,
                "history": None if history is None else history(),
                "recorded": encode_keys(list(self.recorded)),
                "with_streams": self.with_streams,
                "weighting": self.weighting,
                **priors,
                **received,
                **scores,
            }

        return plain

    @classmethod
    def of(cls, state: Any, method: str, baseline: Baseline, *, late: int | None = None) -> EstimatorState:
        """The inverse of `snapshot`; with ``late`` there is no carry, but scores of recent steps.

        A ValueError if the state is of another method, is inconsistent, or does not fit the baseline.
        """
        if not isinstance(state, dict) or not set(state) >= PARTS:
            raise ValueError("state: not a state_dict of an AdvantageEstimator.")
        if not isinstance(state["method"], str) or state["method"] != method:
            raise ValueError(f"state: saved by method {state['method']!r}, this estimator is {method!r}.")
        history = None if state["history"] is None else RewardHistory.from_state_dict(state["history"])
        if history is not None and history.horizon != baseline.horizon:
            raise ValueError(
                f"state: its history reaches {history.horizon:g} steps back, this estimator needs "
                f"{baseline.horizon:g}; build it with the parameters that were saved."
            )
        kept = kept_visits(baseline, late)
        if history is not None and history.max_visits != kept:
            raise ValueError(
                f"state: its history keeps the {history.max_visits:g} newest visits, this estimator needs "
                f"{kept:g}; build it with the parameters that were saved."
            )
        if history is not None and history.state_size != baseline.state_size:
            raise ValueError(
                f"state: its history keeps {history.state_size} numbers of each prompt, method {method!r} "
                f"{baseline.state_size}. Start the history anew."
            )
        if history is not None:
            history.columns.keep_for_late(late)
        carry = _stored_carry(state["carry"]) if late is None else None
        if late is None and not baseline.accepts_carry(carry):
            raise ValueError(
                f"state: the carry of method {method!r} is incomplete; the state was altered, or the estimator was not "
                "built with the parameters that were saved."
            )
        last_step = stored_step(state["last_step"])
        recorded = dict.fromkeys(decode_keys(state["recorded"]))
        if history is not None and history.last_step > last_step:
            raise ValueError("state: the history has visits after its last step; the state was altered.")
        with_streams = state["with_streams"]
        if not (with_streams is None or isinstance(with_streams, bool)):
            raise ValueError(f"state: with_streams must be True, False or None, got {with_streams!r}.")
        weighting = state.get("weighting")
        if not (weighting is None or isinstance(weighting, str)):
            raise ValueError(f"state: weighting must be text or None, got {weighting!r}.")
        priors = state.get("priors", {})
        if not isinstance(priors, dict) or (priors and (history is not None or baseline.horizon == 0)):
            raise ValueError("state: priors must be numbered, and only without a history; the state was altered.")
        read = tuple(Prior.of_plain(prior) for prior in priors.values())
        received = Received.of_plain(state.get("received", {}))
        known = late is not None and "scores" in state
        visited = () if history is None else RecentScores.of(history.columns).steps
        scores = RecentScores.of_plain(state["scores"], baseline, visited) if known else None
        return cls(carry, history, last_step, recorded, with_streams, weighting, read, late, received, scores)


def _stored_carry(carry: Any) -> dict[str, np.ndarray] | None:
    if carry is None:
        return None
    if not isinstance(carry, dict) or not all(isinstance(array, np.ndarray) for array in carry.values()):
        raise ValueError("state: the carry must be arrays by name; the state was altered.")
    for name, array in carry.items():
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            raise ValueError(f"state: carry {name!r} must hold finite numbers; the state was altered.")
    return {name: np.array(array) for name, array in carry.items()}
