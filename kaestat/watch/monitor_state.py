"""The state of a `kaestat.watch.RunMonitor` as plain data and arrays, to restart a watch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kaestat.core.storage import decode_keys, encode_keys
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.watch.prompt_sums import PromptSums
from kaestat.watch.step_rows import StepRows

if TYPE_CHECKING:
    from kaestat.watch.run_monitor import RunMonitor

_SUMS = ("_errors", "_raw", "_noises")


def monitor_state(monitor: RunMonitor) -> dict[str, Any]:
    """The whole state of a monitor; a TypeError if a prompt or a method cannot be stored."""
    return {
        "estimators": {str(n): method.content() for n, method in enumerate(monitor._methods.values())},
        "prompts": encode_keys(list(monitor._number)),
        "streams": encode_keys(list(monitor._stream)),
        "visits": monitor._visits,
        "sums": {name: getattr(monitor, name).state() for name in _SUMS},
        "open": {str(n): _plain_rows(rows) for n, rows in enumerate(monitor._open)},
        "completions": monitor._completions,
        "late": monitor._late,
        "range": [monitor._lowest, monitor._highest],
        "told": monitor._told,
        "refused": monitor._refused,
        "widened": monitor._widened,
        "measure": monitor._measure,
        "steps": {name: np.asarray(column, dtype=float) for name, column in monitor.steps.items()},
    }


def restore_monitor(monitor: RunMonitor, state: dict[str, Any]) -> None:
    """Load the result of `monitor_state` into a monitor with the same methods.

    A ValueError if the state is of other methods, or was altered. The monitor is then unusable.
    """
    try:
        if set(state["steps"]) != set(monitor.steps) or len(state["estimators"]) != len(monitor._methods):
            raise ValueError("state: of a watch with other methods.")
        for n, name in enumerate(monitor._methods):
            monitor._methods[name] = AdvantageEstimator.of_content(state["estimators"][str(n)], "state")
        monitor._number = {key: n for n, key in enumerate(decode_keys(state["prompts"]))}
        monitor._stream = {key: n for n, key in enumerate(decode_keys(state["streams"]))}
        monitor._visits = state["visits"].astype(np.int64)
        for name in _SUMS:
            setattr(monitor, name, PromptSums.of_state(state["sums"][name]))
        monitor._open = [_rows(state["open"][str(n)]) for n in range(len(state["open"]))]
        monitor._completions, monitor._late = int(state["completions"]), int(state["late"])
        monitor._lowest, monitor._highest = map(float, state["range"])
        monitor._measure, monitor._widened = str(state["measure"]), str(state["widened"])
        monitor._told, monitor._refused = ([str(text) for text in state[name]] for name in ("told", "refused"))
        for name in monitor.steps:
            monitor.steps[name] = state["steps"][name].tolist()
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"state: not of a watch ({type(error).__name__}: {error}).") from error


def _plain_rows(rows: StepRows) -> dict[str, Any]:
    streams = {} if rows.stream is None else {"stream": rows.stream}
    return {"step": rows.step, "prompt": rows.prompt, "reward": rows.reward, "weights": rows.weights} | streams


def _rows(plain: dict[str, Any]) -> StepRows:
    return StepRows(plain["step"], plain["prompt"], plain["reward"], plain.get("stream"), plain["weights"])
