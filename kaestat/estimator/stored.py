"""The state of an estimator as plain data."""

from collections.abc import Callable
from typing import Any

from kaestat.core.storage import reading
from kaestat.estimator.held_state import Held, Sender
from kaestat.estimator.plan import Plan
from kaestat.estimator.reach import ReturnWatch
from kaestat.estimator.state import EstimatorState
from kaestat.history.delta import HistoryDelta, concat


def opening(state: EstimatorState, plan: Plan) -> Held:
    """The state of an estimator with this plan before its first call."""
    returns = ReturnWatch(plan.serving.method, plan.serving.baseline)
    return Held(plan, state, returns, deltas=() if plan.keep_deltas else None)


def snapshot(held: Held) -> Callable[[], dict[str, Any]]:
    """A function that returns the state as of now, and the deltas to send, as plain data and NumPy arrays."""
    plain, deltas, last_step = held.state.snapshot(held.plan.serving.method), held.deltas, held.state.last_step
    return lambda: plain() | ({"pending": concat(deltas, last_step).plain()} if deltas else {})


@reading()
def loaded(state: Any, plan: Plan, sender: Sender) -> Held:
    """The inverse of `snapshot`, for a plan; its deltas are numbered under the sender's name."""
    method, baseline = plan.serving.method, plan.serving.baseline
    held = opening(EstimatorState.of(state, method, baseline, late=plan.order.late), plan)
    if held.deltas is None or "pending" not in state:
        return held
    pending = HistoryDelta.of_plain(state["pending"])
    return held._replace(deltas=(pending,)) if pending.origins else held.keeping(pending, sender)
