"""Steps in order: each once, and each prompt once a step."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self

from kaestat.baselines.base import Baseline
from kaestat.core.arrays import Visits
from kaestat.core.samples import StepSamples
from kaestat.estimator.record import StepRecord
from kaestat.estimator.state import EstimatorState
from kaestat.estimator.steps.order import Outcome, advance
from kaestat.estimator.steps.serving import Batch, Computed, Past, Serving


@dataclass(frozen=True)
class StrictOrder:
    """The `kaestat.estimator.steps.order.Order` of an estimator that refuses as a fault what is out of order."""

    name: ClassVar[str] = "strict"
    late: None = None

    @classmethod
    def of(cls, serving: Serving, late: int | None, keep_deltas: bool) -> Self:
        """The order; a ValueError if options are given that it has no use for."""
        if keep_deltas:
            raise ValueError('keep_deltas: only with order="any"; what is added to in order cannot be merged.')
        if late is not None:
            raise ValueError('late: only with order="any"; in order nothing is.')
        return cls()

    def check(self, state: EstimatorState, samples: StepSamples, step: int) -> None:
        """Raise a ValueError if steps go backwards, or samples have versions."""
        if samples.version is not None:
            _refuse("version")
        if step < state.last_step:
            raise ValueError(
                f"step went backwards: got {step} after {state.last_step}. To resume or replay from step {step}, load "
                'the state that was saved before it; rewards that come late take order="any".'
            )

    def look_back(self, state: EstimatorState, baseline: Baseline, batch: Batch) -> Past:
        """All visits; a ValueError if a prompt has been recorded at this step."""
        history, keys, step = state.history, batch.packing.keys, batch.step
        if history is None:
            again = [key for key in keys if key in state.recorded] if step == state.last_step else []
            if again:
                raise ValueError(
                    f"prompt {again[0]!r} was already recorded at step {step}: its rewards would count twice."
                )
            return Past(Visits.empty(batch.groups), state.carry)
        rows = history.rows(keys)
        history.check_new(keys, rows, step)
        return Past(history.visits_of_rows(rows, step), state.carry, rows)

    def recorded(self, outcome: Outcome, serving: Serving, batch: Batch, past: Past, computed: Computed) -> Outcome:
        """A visit of each prompt, and what the baseline carries on."""
        before, samples, step = outcome.state, batch.samples, batch.step
        carry, keys, history = computed.served.carry, batch.packing.keys, before.history
        recorded, with_streams, write = before.recorded, samples.with_streams, None
        if history is None:
            with_streams = before.with_streams
            if carry is not None:
                recorded = (recorded if step == before.last_step else {}) | dict.fromkeys(keys)
        else:
            write = history.appended(keys, past.rows, step, computed.sums, computed.served.state)
        after = EstimatorState(carry, history, step, recorded, with_streams, samples.weighting, write=write)
        return outcome._replace(state=after)

    def known(self, state: EstimatorState, baseline: Baseline, keys: list[Hashable], step: int) -> tuple[Visits, Any]:
        """All visits, which must be before the step."""
        return state.history.visits(keys, step), state.carry

    def observe(
        self, state: EstimatorState, serving: Serving, samples: StepSamples, step: int, largest: float
    ) -> Outcome:
        """As a step: what a baseline carries on comes of serving."""
        return advance(self, state, serving, samples, step, largest)

    def advantages(self, *args: Any) -> NoReturn:
        """Raise: the history holds visits, whose completions cannot be told apart."""
        _refuse("advantages")

    def merged(self, *args: Any) -> NoReturn:
        """Raise: what comes in elsewhere is out of order."""
        _refuse("merge")

    def newest(self, visits: Visits) -> Visits:
        """The same visits, which are oldest first."""
        return visits

    def too_late(self, state: EstimatorState, method: str, samples: StepSamples, record: StepRecord) -> None:
        """Nothing: late completions are refused."""


def _refuse(name: str) -> NoReturn:
    raise ValueError(f'{name}: this estimator takes steps in order; make it with order="any".')
