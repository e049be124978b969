"""The state of an `AdvantageEstimator` between two steps, and its form in files and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.core.arrays import Array
from kaestat.core.seen_rewards import SeenRewards
from kaestat.core.storage import decode_keys, encode_keys
from kaestat.estimator.reach import Returns
from kaestat.history.fields import stored_step
from kaestat.history.history import HistoryWrite, RewardHistory
from kaestat.history.prior import Prior

if TYPE_CHECKING:
    from kaestat.estimator.step import StepRecord


@dataclass(frozen=True, eq=False)
class EstimatorState:
    """Everything that changes in an `AdvantageEstimator`."""

    carry: Any = None  # The baseline's state in addition to its history
    history: RewardHistory | None = None  # None before the first step, and for baselines without one
    last_step: int = -1  # The last step recorded; -1 before the first
    # Prompts of the last step, kept for baselines with a carry but no history
    recorded: dict[Hashable, None] = field(default_factory=dict)
    # The optional inputs of the completions in the history (`Samples.given`); None while there are none
    given: str | None = None
    # The priors with which the history will begin; empty once there is a history, which then holds their visits
    priors: tuple[Prior, ...] = ()
    seen: SeenRewards = field(default_factory=SeenRewards)  # Where prompts share what is learned from rewards

    # What is not saved
    # Rows of the history that are still to be written (`kaestat.estimator.stored.StoredEstimator.state`)
    write: HistoryWrite | None = None
    record: StepRecord | None = None  # Of the last `step`
    values: Array | None = None  # Of the samples of the last `step`
    returns: Returns = field(default_factory=Returns)
    warned: frozenset[str] = frozenset()  # Names of warnings that come once

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
                "given": self.given,
                "seen": self.seen.plain(),
                "priors": {str(n): prior.plain() for n, prior in enumerate(self.priors)},
            }

        return plain

    @classmethod
    def of(
        cls,
        state: dict[str, Any],
        method: str,
        baseline: Baseline,
        history_of: Callable[[dict[str, Any]], RewardHistory] = RewardHistory.from_state_dict,
        **more: Any,
    ) -> Self:
        """The inverse of `snapshot`; ``more`` are further fields.

        A ValueError or another error if the state is of another method, is inconsistent, or does not fit the baseline.
        """
        if state["method"] != method:
            raise ValueError(f"state: saved by method {state['method']!r}, this estimator is {method!r}.")
        history = None if state["history"] is None else history_of(state["history"])
        last_step, given, priors = stored_step(state["last_step"]), state["given"], state["priors"]
        if history is not None and history.horizon != baseline.horizon:
            raise ValueError(
                f"state: its history reaches {history.horizon:g} steps back, this estimator needs "
                f"{baseline.horizon:g}; build it with the parameters that were saved."
            )
        if history is not None and history.last_step > last_step:
            raise ValueError("state: the history has visits after its last step; the state is corrupted.")
        if not (given is None or isinstance(given, str)):
            raise ValueError(f"state: given must be text or None, got {given!r}.")
        if priors and (history is not None or baseline.horizon == 0):
            raise ValueError("state: there are priors only before a history; the state is corrupted.")
        return cls(
            history=history,
            last_step=last_step,
            recorded=dict.fromkeys(decode_keys(state["recorded"])),
            given=given,
            priors=tuple(Prior.of_plain(prior) for prior in priors.values()),
            seen=SeenRewards.of_plain(state["seen"]),
            **more,
        )


def strict_state(state: dict[str, Any], method: str, baseline: Baseline) -> EstimatorState:
    """`EstimatorState.of` for steps in order, with a ValueError if its history keeps too much or too little."""
    if "pending" in state:
        raise ValueError("state: of an AsynchronousEstimator; load it into one.")
    carry = _stored_carry(state["carry"], method, baseline)
    loaded = EstimatorState.of(state, method, baseline, carry=carry)
    if loaded.history is not None:
        kept = loaded.history.max_visits, loaded.history.numbers.shape[1]
        if kept != (baseline.max_visits, baseline.state_size):
            raise ValueError(
                f"state: its history keeps {kept[0]:g} visits and {kept[1]} numbers of a prompt, method {method!r} "
                f"{baseline.max_visits:g} and {baseline.state_size}; build it with the parameters that were saved."
            )
    return loaded


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
