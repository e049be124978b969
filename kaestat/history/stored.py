"""A history's state as plain data, and histories in files."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from kaestat.core.storage import encode_keys, load_state, save_state
from kaestat.history.columns import HistoryColumns
from kaestat.history.fields import stored_columns, stored_shown, stored_state


class StoredHistory(HistoryColumns):
    """What `kaestat.RewardHistory` does with checkpoints and files."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, as plain data and NumPy arrays (copies)."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """`state_dict` as of now, for when it is called; then the ids are encoded, which takes longest."""
        row, size = self._row, len(self._row)
        plain: dict[str, Any] = {
            "horizon": self.horizon,
            "last_step": self.last_step,
            "fields": {name: field[1 : size + 1].copy() for name, field in self._fields.items()},
        }
        if self.max_visits < math.inf:
            plain["max_visits"] = self.max_visits
        if self.late is not None:
            plain |= {"late": self.late, "shown": self._shown}
        if self._state.shape[1]:
            plain["state"] = self._state[1 : size + 1].copy()

        def state() -> dict[str, Any]:
            return plain | {"keys": encode_keys(list(row)[:size])}  # ids are only ever added, and at the end

        return state

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Self:
        """A history from `state_dict`.

        Weighted histories of earlier versions lack ``sum W^2 Z`` and ``sum W^2 Z^2``: filled in as `Visits` has them.

        Raises
        ------
        ValueError
            If the parts of the state do not fit together.
        """
        fields, keys, last_step = stored_columns(state)
        try:
            history = cls(  # type: ignore[call-arg]  # the constructor is the history's
                state["horizon"],
                weighted="weight" in fields,
                with_divergence="divergence" in fields,
                max_visits=state.get("max_visits", math.inf),
                late=state.get("late"),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"state: not a reward history ({type(error).__name__}: {error}).") from error
        if set(fields) != set(history._fields):
            raise ValueError("state: the fields of the history do not fit together; the state was altered.")
        history._row = dict(zip(keys, range(1, len(keys) + 1), strict=True))
        width = fields["step"].shape[1]
        for name, field in fields.items() if keys else ():  # an empty array may claim any width
            history._fields[name] = np.concatenate([np.zeros((1, width), dtype=field.dtype), field])
        history._shown = stored_shown(state, history.width)
        history._state = stored_state(state.get("state"), len(keys))
        history.last_step = last_step
        return history

    def keep_for_late(self, late: int | None) -> None:
        """From now on keep what visits that come late by so many steps reach; None for a history in order."""
        if late is None and self._shown < self.width:
            self._fields = {name: field[:, -self._shown :].copy() for name, field in self._fields.items()}
        self.late = late

    def save(self, path: Any) -> None:
        """Write the history to a file, atomically and without pickle."""
        save_state(path, {"history": self.state_dict()})

    @classmethod
    def load(cls, path: Any) -> Self:
        """Read a history written by `save`.

        Raises
        ------
        ValueError
            If the file is torn or holds something else.
        """
        state = load_state(path)
        if not isinstance(state.get("history"), dict):
            raise ValueError(f"{path}: holds no reward history.")
        return cls.from_state_dict(state["history"])
