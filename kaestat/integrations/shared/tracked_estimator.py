"""Any kind of estimator, as a `TrainerSession` calls it: with checked rows, and metrics of each step."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from kaestat.credit.turn_estimator import TurnEstimator
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.held_state import Call
from kaestat.estimator.several_rewards import SeveralRewards
from kaestat.integrations.shared.metrics import step_metrics
from kaestat.integrations.shared.prompt_ids import IdentityCheck
from kaestat.integrations.shared.tracked_rows import TrackedRows, check_step, looks_back, tracked_rows


class TrackedEstimator:
    """An `AdvantageEstimator` with a check of prompt ids.

    `keys` are those of its state in a session's file and in the estimator's own. `metrics` are the last step's figures
    of `step_metrics`, named ``baseline/NAME``.
    """

    kind: ClassVar[type] = AdvantageEstimator
    keys: ClassVar[tuple[str, ...]] = ("watched", "state")
    _unused: ClassVar[tuple[None, ...]] = (None, None)  # columns of the estimator that no trainer has

    def __init__(self, estimator: Any):
        if not isinstance(estimator, self.kind):
            raise TypeError(
                f"estimator must be a kaestat {self.kind.__name__}, got {type(estimator).__name__}; for example "
                f'{self.kind.__name__}("kae").'
            )
        self.estimator: Any = estimator
        self.forget()

    def forget(self) -> None:
        """Forget all ids, as after a resume."""
        self._watch, self.metrics = IdentityCheck(), dict[str, float]()

    @property
    def any_order(self) -> bool:
        """Whether completions may come at any time, recorded under the policy that sampled them."""
        return all(each.order == "any" for each in self.parts().values())

    @property
    def stateful(self) -> bool:
        """Whether values depend on earlier steps."""
        return any(looks_back(each.baseline) for each in self.parts().values())

    def rows(self, size: int, step: int | None, *columns: Any) -> TrackedRows:
        """The rows of a call, checked; parameters and errors as `tracked_rows`."""
        for each in self.parts().values():
            check_step(step, each)
        return tracked_rows(self._watch, size, step, *columns)

    def recorded(
        self, name: Literal["step", "observe"], call: Call, rewards: Any, rows: TrackedRows, weights: Any, version: Any
    ) -> Any:
        """The result of the estimator's `step` or `observe`, as a part of a larger call."""
        columns = rows.keep, rows.streams, weights, *self._unused, version
        found = self.estimator.recorded(name, call, rows.ids, self._column(rewards), rows.step, *columns)
        if name == "step":
            self.metrics = {
                f"baseline/{part}{figure}": value
                for part, each in self._reached(found, rows.keep).items()
                for figure, value in step_metrics(each.record).items()
            }
        return found

    def previewed(self, rewards: Any, rows: TrackedRows, weights: Any, version: Any) -> np.ndarray:
        """Advantages as of `recorded`, from an `AdvantageEstimator`, which is unchanged."""
        columns = rows.keep, rows.streams, weights, *self._unused, version
        with self.estimator.lock:
            change = self.estimator.prepared("step", Call(), rows.ids, self._column(rewards), rows.step, *columns)
        advantages: np.ndarray = change.advantages
        return advantages

    def _column(self, rewards: Any) -> Any:
        return np.asarray(rewards, dtype=np.float64)

    def parts(self) -> dict[str, AdvantageEstimator]:
        """The estimators of single rewards, by the prefix of their metrics' names."""
        return {"": self.estimator}

    def _reached(self, advantages: Any, keep: np.ndarray) -> dict[str, AdvantageEstimator]:
        """Those of `parts` that the last step came to."""
        return self.parts()


class TrackedRewards(TrackedEstimator):
    """A `TrackedEstimator` of `SeveralRewards`; its metrics are named ``baseline/REWARD/NAME``."""

    kind: ClassVar[type] = SeveralRewards

    def parts(self) -> dict[str, AdvantageEstimator]:
        return {f"{name}/": each for name, each in self.estimator.estimators.items()}


class TrackedTurns(TrackedEstimator):
    """A `TrackedEstimator` of a `TurnEstimator`, for lists of rewards, one per turn of a completion.

    Its metrics are those of the first turn, i.e. of whole completions, as ``baseline/NAME``, and those of
    every further turn k of the last step as ``baseline/turn_k/NAME`` (0-based).
    """

    kind: ClassVar[type] = TurnEstimator
    keys: ClassVar[tuple[str, ...]] = ("turns",)  # as `TurnEstimator.save`
    _unused: ClassVar[tuple[None, ...]] = ()

    def _column(self, rewards: Any) -> Any:
        return rewards

    def parts(self) -> dict[str, AdvantageEstimator]:
        return {f"turn_{turn}/" if turn else "": each for turn, each in enumerate(self.estimator.estimators)}

    def _reached(self, advantages: Any, keep: np.ndarray) -> dict[str, AdvantageEstimator]:
        turns = max((len(each) for each, kept in zip(advantages, keep, strict=True) if kept), default=0)
        return dict(list(self.parts().items())[: max(turns, 1)])


def tracked(estimator: AdvantageEstimator | SeveralRewards | TurnEstimator) -> TrackedEstimator:
    """The tracked form of any kind of estimator; a TypeError if it is not an estimator."""
    for each in (TrackedRewards, TrackedTurns):
        if isinstance(estimator, each.kind):
            return each(estimator)
    return TrackedEstimator(estimator)
