"""An estimator's state as plain data, and estimators in files."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Self

from kaestat.baselines import specification
from kaestat.baselines.registry import FIXED_PARAMETERS, SECOND_METHOD
from kaestat.core.storage import load_state, pack_arrays, save_state, unpack_arrays
from kaestat.estimator.held_state import Change, Held, make_changes
from kaestat.estimator.imported_visits import ImportedVisits
from kaestat.estimator.reach import ReturnWatch
from kaestat.estimator.state import EstimatorState
from kaestat.history.delta import HistoryDelta, concat


class StoredEstimator(ImportedVisits):
    """The part of `kaestat.AdvantageEstimator` that reads and writes its state."""

    late: int | None
    _named: bool
    _params: dict[str, Any]
    _keep_deltas: bool
    _scale: str | None

    def state_dict(self) -> dict[str, Any]:
        """The state as plain data (arrays as bytes), for a trainer's checkpoint.

        It survives pickle and ``torch.save`` with ``torch.load(weights_only=True)``.
        """
        return self.state_snapshot()()

    def state_snapshot(self) -> Callable[[], dict[str, Any]]:
        """`state_dict` as of now, for when it is called: a step then pays for a copy of the arrays alone."""
        plain = self._snapshot()
        return lambda: pack_arrays(plain())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state from `state_dict`; the estimator must have been built with the same method.

        Raises
        ------
        ValueError
            If the state belongs to another method or does not fit together. The estimator is then unchanged.
        """
        with self.lock:
            make_changes([self.taken(state)])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write method, parameters and state to one file, atomically and without pickle.

        Raises
        ------
        TypeError
            If a parameter (a kernel function of your own) or a prompt id cannot be stored.
        """
        save_state(path, self.content())

    def content(self) -> dict[str, Any]:
        """What `save` writes."""
        params = self._params
        if self._named and self.method in FIXED_PARAMETERS:
            params = {"bandwidth": "auto"} | params  # told, since files that do not were written with another default
        plan = {
            "method": self.method if self._named else specification.dump(self.baseline),
            "scale": self._scale,
            "objective": self.objective,
            "order": self.order,
            "keep_deltas": self._keep_deltas,
            "params": {name: specification.dump(value) for name, value in params.items()},
        } | ({} if self.late is None else {"late": self.late})
        return {"estimator": plan, "state": self._snapshot()()}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Rebuild an estimator written by `save`; it goes on bit for bit as if it had never stopped.

        Raises
        ------
        ValueError
            If the file is torn, or holds something else.
        """
        return cls.of_content(load_state(path), path)

    @classmethod
    def of_content(cls, content: dict[str, Any], path: str | os.PathLike[str]) -> Self:
        """`load`, from what has been read of the file at ``path``."""
        plan = content.get("estimator")
        if not isinstance(plan, dict):
            raise ValueError(f"{path}: holds no AdvantageEstimator.")
        try:
            params = {name: specification.load(value) for name, value in plan["params"].items()}
            method = specification.load(plan["method"])
            if isinstance(method, str):
                params = dict(FIXED_PARAMETERS.get(method, {})) | params
            chosen = {name: plan[name] for name in ("objective", "order", "late", "keep_deltas") if name in plan}
            estimator = cls(method, scale=plan["scale"], **chosen, **params)  # type: ignore[call-arg]  # its own class's
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{path}: its estimator cannot be built ({error}).") from error
        make_changes([estimator._change_to(content.get("state"))])
        return estimator

    def taken(self, state: dict[str, Any]) -> Change:
        """`load_state_dict` without its effect."""
        return self._change_to(unpack_arrays(state))

    def _snapshot(self) -> Callable[[], dict[str, Any]]:
        with self.lock:
            held = self.settle()
            plain, deltas, last_step = held.state.snapshot(self.method), held.deltas, held.state.last_step
        return lambda: plain() | ({"pending": concat(deltas, last_step).plain()} if deltas else {})

    def _change_to(self, state: Any) -> Change:
        if isinstance(state, dict) and state.get("method") == SECOND_METHOD:
            self._hand_over(None)
        held = self.settle()
        loaded = Held(
            EstimatorState.of(state, self.method, self.baseline, late=self.late),
            ReturnWatch(self.method, self.baseline),
        )
        if held.deltas is None:
            return Change(self, held, loaded)
        self._named_sender = 0, ""  # numbers after those of the state may have been given already
        loaded = loaded._replace(deltas=())
        if "pending" in state:
            pending = HistoryDelta.of_plain(state["pending"])
            loaded = loaded._replace(deltas=(pending,)) if pending.origins else self._keeping(loaded, (), pending)
        return Change(self, held, loaded)
