"""What every estimator has: its arguments, its state, and both in checkpoints and files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Self, cast

from kaestat.baselines.base import Baseline
from kaestat.core.locked import Locked
from kaestat.core.storage import load_state, pack_arrays, reading, save_state, unpack_arrays
from kaestat.estimator.plan import Plan, arguments
from kaestat.estimator.state import EstimatorState, strict_state


class SharedStates(Locked):
    """The states of estimators that change together.

    Ctrl-C raises a KeyboardInterrupt between any two operations. A call therefore computes its results first and
    changes nothing. One assignment to ``states`` then makes the new states valid, and nothing is left to do but to
    return. A history is too large for a copy in every step: its rows are written by whoever reads the state next, and
    a write that was interrupted is repeated (`kaestat.history.history.HistoryWrite`).
    """

    def __init__(self, states: dict[str, EstimatorState]):
        super().__init__()
        self.states = states

    def read(self, name: str) -> EstimatorState:
        """A state, with the rows of its history written."""
        with self.lock:
            state = self.states[name]
            if state.write is not None and state.history is not None:
                state.history.carry_out(state.write)
                state = replace(state, write=None)
                self.states = {**self.states, name: state}
            return state


class StoredEstimator:
    """An estimator with a plan and a state that changes as a whole. One thread may step while others save."""

    order: ClassVar[str] = "strict"  # of steps; "any" for `kaestat.AsynchronousEstimator`

    def __init__(self, plan: Plan):
        self.plan = plan
        self.shared, self.name = SharedStates({"": self._first_state()}), ""

    @property
    def state(self) -> EstimatorState:
        """All of the present state."""
        return self.shared.read(self.name)

    @property
    def lock(self) -> Any:
        """The lock of the state: whoever has it sees it unchanged."""
        return self.shared.lock

    @property
    def method(self) -> str:
        """Name of the method, or of a baseline object's type."""
        return self.plan.method

    @property
    def scale(self) -> str:
        """The scaling of advantages."""
        return self.plan.scale

    @property
    def objective(self) -> str:
        """The function of each prompt's success rate to maximise."""
        return self.plan.objective

    @property
    def baseline(self) -> Baseline:
        """The baseline that computes the values."""
        return self.plan.baseline

    def state_dict(self) -> dict[str, Any]:
        """The state as plain data (arrays as bytes), for a trainer's checkpoint.

        It survives pickle and ``torch.save`` with ``torch.load(weights_only=True)``.
        """
        return self.state_snapshot()()

    def state_snapshot(self) -> Callable[[], dict[str, Any]]:
        """A function that returns `state_dict` as of now; a step then only pays for a copy of the arrays."""
        with self.lock:
            plain = self.state.snapshot(self.method)
        return lambda: pack_arrays(plain())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the result of `state_dict`; the estimator must have been built with the same arguments.

        Raises a ValueError if the state belongs to another method or does not fit together. The estimator is then
        unchanged.
        """
        self.put(self.stored_state(state))

    def put(self, state: EstimatorState) -> None:
        """Change the state."""
        self.shared.states = {**self.shared.states, self.name: state}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write arguments and state to one file, atomically and without pickle.

        Raises a TypeError if a parameter (a kernel function of your own) or a prompt id cannot be stored.
        """
        save_state(path, self.content())

    def content(self) -> dict[str, Any]:
        """The content that `save` writes."""
        with self.lock:
            state = self.state.snapshot(self.method)
        return {"class": type(self).__name__, "estimator": self._arguments(), "state": state()}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The estimator in a file written by `save`; it continues bit for bit as if it had never stopped.

        Raises
        ------
        ValueError
            If the file is corrupted, or holds something else.
        """
        return cls.of_content(load_state(path), path)

    @classmethod
    def of_content(cls, content: dict[str, Any], path: str | os.PathLike[str]) -> Self:
        """The result of `load`, from the content already read from the file at ``path``."""
        plan = content.get("estimator")
        if not isinstance(plan, dict) or content.get("class") != cls.__name__:
            raise ValueError(f"{path}: holds no {cls.__name__}, but {content.get('class', 'something else')!r}.")
        with reading(str(path)):
            method, options = arguments(plan)
            estimator = cast(Self, cast(Any, cls)(method, **options))
        estimator.put(estimator.stored_state(content.get("state")))
        return estimator

    @reading()
    def stored_state(self, state: Any) -> EstimatorState:
        """The state in the result of `state_dict`, or with its arrays unpacked."""
        if not isinstance(state, dict) or not {"method", "carry"} <= set(state):
            raise ValueError("state: not a state_dict of an estimator.")
        return self._stored_state(unpack_arrays(state))

    # `kaestat.AsynchronousEstimator` has its own of these.

    def _arguments(self) -> dict[str, Any]:
        return self.plan.plain()

    def _first_state(self) -> EstimatorState:
        return EstimatorState(self.baseline.initial_carry())

    def _stored_state(self, state: dict[str, Any]) -> EstimatorState:
        return strict_state(state, self.method, self.baseline)
