"""The state of an `AdvantageEstimator` between two steps, and its form in files and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.core.seen_rewards import SeenRewards
from kaestat.core.storage import decode_keys, encode_keys
from kaestat.history.columns import HistoryWrite
from kaestat.history.fields import stored_step
from kaestat.history.history import RewardHistory
from kaestat.history.prior import Prior

PARTS = {"method", "last_step", "carry", "history", "recorded", "with_streams", "weighting", "priors", "seen"}


@dataclass(frozen=True, eq=False)
class EstimatorState:
    """Everything that an `AdvantageEstimator` knows about earlier steps."""

    carry: Any = None  # The baseline's state in addition to its history
    history: RewardHistory | None = None  # None before the first step, and for baselines without one
    last_step: int = -1  # The last step recorded; -1 before the first
    # Prompts of the last step, kept for baselines with a carry but no history
    recorded: dict[Hashable, None] = field(default_factory=dict)
    with_streams: bool | None = None  # Whether steps had stream ids; None while there is no history
    # Which of "weights" and "importance" completions had (`StepSamples`); None while unknown
    weighting: str | None = None
    # The priors with which the history will begin; empty once there is a history, which then holds their visits
    priors: tuple[Prior, ...] = ()
    seen: SeenRewards = field(default_factory=SeenRewards)  # In the calls that recorded
    # Rows of the history that are still to be written (`kaestat.estimator.changes.settle`)
    write: HistoryWrite | None = None

    def snapshot(self, method: str) -> Callable[[], dict[str, Any]]:
        """A function that returns the state as of now, as plain data and NumPy arrays (copies).

        The function raises a TypeError if a prompt id cannot be stored.
        """
        history = None if self.history is None else self.history.snapshot()
        carry = None if self.carry is None else {name: np.array(a) for name, a in self.carry.items()}

        def plain() -> dict[str, Any]:
            return {
                "method": method,
                "last_step": self.last_step,
                "carry": carry,
                "history": None if history is None else history(),
                "recorded": encode_keys(list(self.recorded)),
                "with_streams": self.with_streams,
                "weighting": self.weighting,
                "seen": self.seen.plain(),
                "priors": {str(n): prior.plain() for n, prior in enumerate(self.priors)},
            }

        return plain

    @classmethod
    def of(cls, state: Any, method: str, baseline: Baseline) -> Self:
        """The inverse of `snapshot`.

        A ValueError if the state is of another method, is inconsistent, or does not fit the baseline.
        """
        if isinstance(state, dict) and "pending" in state:
            raise ValueError("state: of an AsynchronousEstimator; load it into one.")
        common = common_state(state, method, baseline, RewardHistory.from_state_dict)
        history = common["history"]
        if history is not None and (history.max_visits, history.state_size) != (
            baseline.max_visits,
            baseline.state_size,
        ):
            raise ValueError(
                f"state: its history keeps {history.max_visits:g} visits and {history.state_size} numbers of a prompt, "
                f"method {method!r} {baseline.max_visits:g} and {baseline.state_size}; build the estimator with the "
                "parameters that were saved."
            )
        return cls(carry=_stored_carry(state["carry"], method, baseline), **common)


def common_state(
    state: Any, method: str, baseline: Baseline, history_of: Callable[[dict[str, Any]], RewardHistory]
) -> dict[str, Any]:
    """The parts of a stored state that do not depend on the order of steps; errors as `EstimatorState.of`."""
    if not isinstance(state, dict) or not set(state) >= PARTS:
        raise ValueError("state: not a state_dict of this kind of estimator.")
    if not isinstance(state["method"], str) or state["method"] != method:
        raise ValueError(f"state: saved by method {state['method']!r}, this estimator is {method!r}.")
    history = None if state["history"] is None else history_of(state["history"])
    if history is not None and history.horizon != baseline.horizon:
        raise ValueError(
            f"state: its history reaches {history.horizon:g} steps back, this estimator needs {baseline.horizon:g}; "
            "build it with the parameters that were saved."
        )
    last_step = stored_step(state["last_step"])
    if history is not None and history.last_step > last_step:
        raise ValueError("state: the history has visits after its last step; the state is corrupted.")
    recorded = dict.fromkeys(decode_keys(state["recorded"]))
    with_streams, weighting, priors = state["with_streams"], state["weighting"], state["priors"]
    if not (with_streams is None or isinstance(with_streams, bool)):
        raise ValueError(f"state: with_streams must be True, False or None, got {with_streams!r}.")
    if not (weighting is None or isinstance(weighting, str)):
        raise ValueError(f"state: weighting must be text or None, got {weighting!r}.")
    if not isinstance(priors, dict) or (priors and (history is not None or baseline.horizon == 0)):
        raise ValueError("state: priors must be numbered, and only without a history; the state is corrupted.")
    return {
        "history": history,
        "last_step": last_step,
        "recorded": recorded,
        "with_streams": with_streams,
        "weighting": weighting,
        "priors": tuple(Prior.of_plain(prior) for prior in priors.values()),
        "seen": SeenRewards.of_plain(state["seen"]),
    }


def _stored_carry(carry: Any, method: str, baseline: Baseline) -> dict[str, np.ndarray] | None:
    if carry is not None:
        for name, array in carry.items():
            if array.dtype.kind != "f" or not np.isfinite(array).all():
                raise ValueError(f"state: carry {name!r} must hold finite numbers; the state is corrupted.")
        carry = {name: np.array(array) for name, array in carry.items()}
    if not baseline.accepts_carry(carry):
        raise ValueError(
            f"state: the carry of method {method!r} is incomplete; the state is corrupted, or the estimator was not "
            "built with the parameters that were saved."
        )
    return carry
