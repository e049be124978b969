"""A `TurnEstimator` as trainers need it: ids watched, copies of a prompt told apart, states, metrics."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from kaestat.credit.turn_estimator import TurnEstimator
from kaestat.estimator.held_state import Call
from kaestat.integrations.shared.metrics import step_metrics
from kaestat.integrations.shared.prompt_ids import IdentityCheck
from kaestat.integrations.shared.tracked_rows import check_step, looks_back, tracked_rows


class TrackedTurns:
    """Advantages of the turns of one step's completions, with every way to train on a wrong history refused.

    Parameters
    ----------
    estimator : TurnEstimator
        Does all the mathematics and holds the histories.

    Attributes
    ----------
    metrics : dict of str to float
        Of the last step: the figures of `step_metrics` of the first turn, which are those of whole completions, as
        ``baseline/NAME``, and of every further turn k that one came to as ``baseline/turn_k/NAME`` (0-based).

    Examples
    --------
    >>> watched = TrackedTurns(TurnEstimator("kae", bandwidth=10))
    >>> [each.tolist() for each in watched.advantages([[0.0, 1.0], [0.0]], 0, prompts=["2+2=", "2+2="])]
    [[1.0, 1.0], [-1.0]]
    """

    def __init__(self, estimator: TurnEstimator):
        if not isinstance(estimator, TurnEstimator):
            raise TypeError(
                f"estimator must be a kaestat.credit.turn_estimator.TurnEstimator, got {type(estimator).__name__}; "
                'for example TurnEstimator("kae", bandwidth=10).'
            )
        self.estimator = estimator
        self.metrics: dict[str, float] = {}
        self._watch = IdentityCheck()

    @property
    def stateful(self) -> bool:
        """Whether values depend on earlier steps."""
        return looks_back(self.estimator.estimators[0].baseline)

    def advantages(
        self,
        rewards: Sequence[Sequence[float] | np.ndarray],
        step: int | None,
        *,
        prompts: Sequence[Any],
        ids: Sequence[Hashable] | None = None,
        groups: Sequence[Hashable] | None = None,
        mask: Sequence[bool] | np.ndarray | None = None,
        weights: Sequence[Sequence[float] | np.ndarray] | None = None,
        version: Sequence[int] | np.ndarray | None = None,
    ) -> list[np.ndarray]:
        """Advantages of all turns of one step's completions; records their returns.

        Parameters
        ----------
        rewards : sequence of sequence of float, length N
            As `TurnEstimator.step` takes them; so are ``weights``.
        step, prompts, ids, groups, mask, version
            As `kaestat.integrations.shared.tracked_estimator.TrackedEstimator.advantages` takes them.

        Returns
        -------
        list of ndarray of float64, length N

        Raises
        ------
        UnstablePromptIds, ValueError, TypeError
            As there, and as `TurnEstimator.step`.
        """
        call = Call()
        check_step(step, self.estimator.estimators[0])
        rows = tracked_rows(self._watch, len(rewards), step, prompts, ids, groups, mask)
        with self.estimator.lock:
            columns = rows.keep, rows.streams, weights, version
            found = self.estimator.recorded("step", call, rows.ids, rewards, rows.step, *columns)
            reached = max((len(each) for each, kept in zip(found, rows.keep, strict=True) if kept), default=0)
        self.metrics = {}
        for turn, estimator in enumerate(self.estimator.estimators[: max(reached, 1)]):
            place = f"baseline/turn_{turn}/" if turn else "baseline/"
            self.metrics |= {place + name: value for name, value in step_metrics(estimator.record).items()}
        return call.finish(found)

    def state_dict(self) -> dict[str, Any]:
        """The estimator's state as plain data."""
        with self.estimator.lock:
            return self.estimator.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state of `state_dict`."""
        with self.estimator.lock:
            self.estimator.load_state_dict(state)
            self._watch, self.metrics = IdentityCheck(), {}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, atomically and without pickle, for `load` and `TurnEstimator.load`."""
        with self.estimator.lock:
            self.estimator.save(path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from a file of `save`; errors as `TurnEstimator.load`."""
        with self.estimator.lock:
            self.estimator.load(path)
            self._watch, self.metrics = IdentityCheck(), {}
