"""Steps in order: each step once, and each prompt once per step."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self, cast

from kaestat.baselines.base import Baseline
from kaestat.core.arrays import Visits
from kaestat.core.samples import StepSamples
from kaestat.estimator.record import StepRecord
from kaestat.estimator.state import EstimatorState
from kaestat.estimator.steps.call import Batch, Computed, Outcome, Past, Serving, advance
from kaestat.history.history import RewardHistory


@dataclass(frozen=True)
class StrictOrder:
    """The `kaestat.estimator.steps.call.Order` of an estimator that refuses anything out of order."""

    name: ClassVar[str] = "strict"
    late: None = None

    @classmethod
    def of(cls, serving: Serving, late: int | None, keep_deltas: bool) -> Self:
        """The order; a ValueError for options that it does not use."""
        if keep_deltas:
            raise ValueError('keep_deltas: only with order="any"; a history in strict order cannot be merged.')
        if late is not None:
            raise ValueError('late: only with order="any"; in strict order nothing is late.')
        return cls()

    def check(self, state: EstimatorState, samples: StepSamples, step: int) -> None:
        """Raise a ValueError if steps go backwards, or samples have versions."""
        if samples.version is not None:
            _refuse("version")
        if step < state.last_step:
            raise ValueError(
                f"step went backwards: got {step} after {state.last_step}. To resume or replay from step {step}, load "
                'the state that was saved before it; late rewards need order="any".'
            )

    def look_back(self, state: EstimatorState, baseline: Baseline, batch: Batch) -> Past:
        """All visits; a ValueError if a prompt has been recorded at this step."""
        state, keys, step = batch.opened(state, baseline), batch.packing.keys, batch.step
        if state.history is None:
            again = [key for key in keys if key in state.recorded] if step == state.last_step else []
            if again:
                raise ValueError(
                    f"prompt {again[0]!r} was already recorded at step {step}: its rewards would count twice."
                )
            return Past(state, Visits.empty(batch.groups), state.carry)
        rows = state.history.rows(keys)
        state.history.check_new(keys, rows, step)
        return Past(state, state.history.columns.visits(rows, step), state.carry, rows)

    def recorded(self, past: Past, serving: Serving, batch: Batch, computed: Computed) -> Outcome:
        """The outcome with one visit of each prompt, and the baseline's carry."""
        before, samples, keys, step, served = past.state, batch.samples, batch.packing.keys, batch.step, computed.served
        recorded, write = before.recorded, None
        with_streams = before.with_streams if before.history is None else samples.with_streams
        if before.history is None:
            if served.carry is not None:
                recorded = (recorded if step == before.last_step else {}) | dict.fromkeys(keys)
        elif past.rows is not None:
            write = before.history.columns.appended(keys, past.rows, step, computed.sums, served.state)
        marks = recorded, with_streams, samples.weighting
        return Outcome(EstimatorState(served.carry, before.history, step, *marks, write=write), computed.record)

    def known(self, state: EstimatorState, baseline: Baseline, keys: list[Hashable], step: int) -> tuple[Visits, Any]:
        """All visits; they must be before the step."""
        return cast(RewardHistory, state.history).visits(keys, step), state.carry

    def observe(self, state: EstimatorState, serving: Serving, samples: StepSamples, step: int) -> Outcome:
        """The outcome of a step: a baseline's carry needs its values."""
        return advance(self, state, serving, samples, step)

    def advantages(self, *args: Any) -> NoReturn:
        """Raise an error: in strict order the history cannot separate these completions from others."""
        _refuse("advantages")

    def merged(self, *args: Any) -> NoReturn:
        """Raise an error: completions recorded by others are out of order."""
        _refuse("merge")

    def newest(self, visits: Visits) -> Visits:
        """The same visits; they are sorted already, oldest first."""
        return visits

    def too_late(self, state: EstimatorState, method: str, samples: StepSamples, record: StepRecord) -> None:
        """None, since late completions are refused."""


def _refuse(name: str) -> NoReturn:
    raise ValueError(f'{name}: this estimator takes steps in order; make it with order="any".')
