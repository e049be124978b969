"""What every estimator has: its arguments, its state, and both in checkpoints and files."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar, Self, cast

from kaestat.baselines.base import Baseline
from kaestat.core.locked import Locked
from kaestat.core.storage import load_state, pack_arrays, reading, save_state, unpack_arrays
from kaestat.estimator.changes import Cell, Change, Current, make_changes, settle
from kaestat.estimator.plan import Plan, arguments
from kaestat.estimator.reach import ReturnWatch
from kaestat.estimator.state import EstimatorState


class StoredEstimator(Locked):
    """An estimator with a plan and a state that changes as a whole."""

    order: ClassVar[str] = "strict"  # of steps; "any" for `kaestat.AsynchronousEstimator`

    def __init__(self, plan: Plan):
        super().__init__()
        self.plan = plan
        self.cell = Cell(self._at(self._first_state()))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """As `Locked`; a copy changes alone."""
        super().__setstate__(state)
        self.cell = Cell(self.cell.value)

    @property
    def current(self) -> Current:
        """All of the present state."""
        with self.lock:
            return settle(self.cell)

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
            plain = settle(self.cell).state.snapshot(self.method)
        return lambda: pack_arrays(plain())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the result of `state_dict`; the estimator must have been built with the same arguments.

        Raises a ValueError if the state belongs to another method or does not fit together. The estimator is then
        unchanged.
        """
        with self.lock:
            with reading():
                change = self.taken(unpack_arrays(state))
            make_changes([change])

    @reading()
    def taken(self, state: dict[str, Any]) -> Change:
        """The result of `load_state_dict`, for unpacked arrays, without its effect."""
        return Change(self.cell, self._at(self._stored_state(state)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write arguments and state to one file, atomically and without pickle.

        Raises a TypeError if a parameter (a kernel function of your own) or a prompt id cannot be stored.
        """
        save_state(path, self.content())

    def content(self) -> dict[str, Any]:
        """The content that `save` writes."""
        with self.lock:
            state = settle(self.cell).state.snapshot(self.method)
        return {"class": type(self).__name__, "estimator": self._arguments(), "state": state()}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The estimator in a file written by `save`; it continues bit for bit as if it had never stopped.

        Raises
        ------
        ValueError
            If the file is damaged, or holds something else.
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
            estimator = cast(Any, cls)(method, **options)
        make_changes([estimator.taken(content.get("state"))])
        return cast(Self, estimator)

    def _at(self, state: EstimatorState) -> Current:
        return Current(state, ReturnWatch(self.method, self.baseline))

    def _arguments(self) -> dict[str, Any]:
        return self.plan.plain()

    def _first_state(self) -> EstimatorState:
        return EstimatorState(self.baseline.initial_carry())

    def _stored_state(self, state: Any) -> EstimatorState:
        return EstimatorState.of(state, self.method, self.baseline)
