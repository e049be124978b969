"""One estimator in a Ray actor that many workers call."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, cast

from kaestat.asynchronous.delta import HistoryDelta
from kaestat.asynchronous.estimator import AsynchronousEstimator
from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.core.checks import check_whole
from kaestat.core.storage import load_state, save_state


def estimator_actor(
    method: str | Baseline = DEFAULT_METHOD,
    *,
    name: str | None = None,
    path: str | os.PathLike[str] | None = None,
    every: int = 1,
    **options: Any,
) -> Any:
    """A Ray actor that holds an `AsynchronousEstimator` and has its methods.

    The actor serves the calls of all workers one at a time, in order of arrival; the order does not matter.
    ``ray.get(actor.step.remote(...))`` returns the result of `AsynchronousEstimator.step`. With `send` it merges the
    deltas of a worker's own estimator. Raises a ValueError as `AsynchronousEstimator` does; if ``every`` is less than
    1; or if the actor of this name, or the state at this path, has another method or other options.

    Parameters
    ----------
    method, **options
        As `AsynchronousEstimator`.
    name : str, optional
        All workers that use this name get the same actor; the first call creates it. It lives as long as
        one of them holds it. None creates an actor without a name.
    path : path, optional
        File for the actor's state, replaced atomically, on a disk common to all nodes. A restarted or new actor
        continues from it, with a warning. With None no state is kept: if the actor dies, its history is lost.
    every : int
        Number of state-changing calls between two writes of the file. With 1, all answered calls survive a crash.
        With more, `merge` returns the origins in the file, and a worker sends the rest again.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError("an estimator in an actor needs Ray: pip install ray.") from error
    # An actor that fails at the start reports it late.
    asked = SavedEstimator(method, path=path, every=every, **options).made_with()
    kept = {} if name is None else {"name": name, "get_if_exists": True}
    restarts = {} if path is None else {"max_restarts": -1}
    made = ray.remote(num_cpus=0)(SavedEstimator).options(**kept, **restarts)
    actor = made.remote(method, path=path, every=every, **options)
    found = ray.get(actor.made_with.remote())
    if found != asked:
        raise ValueError(f"name: the actor {name!r} was made with {found}, asked for is {asked}; take another name.")
    resumed = ray.get(actor.resumed.remote())
    if resumed is not None:
        warnings.warn(resumed, stacklevel=2)
    return actor


def send(estimator: AsynchronousEstimator, actor: Any) -> None:
    """Make an actor merge what an estimator has recorded, and drop the parts that are safe in the actor.

    The estimator is made with ``keep_deltas=True``. If the call fails, it keeps what it sent, and the next
    call sends it again; it counts once. A ValueError as of `AsynchronousEstimator.merge`.
    """
    import ray

    estimator.acknowledge(ray.get(actor.merge.remote(estimator.pending_delta())))


def _then_written(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call of an estimator that changes its state, followed by the write of the file where one is due.

    If the file cannot be written, the call changes nothing, so a repeated call does not count twice.
    """

    @wraps(call)
    def written(self: SavedEstimator, *args: Any, **options: Any) -> Any:
        due = self.path is not None and self.calls + 1 >= self.every
        before = self.state_snapshot() if due else None
        result = call(self, *args, **options)
        self.calls += 1
        if before is not None:
            try:
                save_state(cast(Path, self.path), self.content() | {"plan": self.made_with()})
            except BaseException:
                AsynchronousEstimator.load_state_dict(self, before())
                self.calls -= 1
                raise
            self.in_file, self.calls = self.received, 0
        return result

    return written


class SavedEstimator(AsynchronousEstimator):
    """The actor's content: an estimator that writes its state to a file."""

    def __init__(
        self,
        method: str | Baseline = DEFAULT_METHOD,
        *,
        path: str | os.PathLike[str] | None = None,
        every: int = 1,
        **options: Any,
    ):
        self.path: Path | None = None  # a prior given here writes no file
        self.every, self.calls = check_whole("every", every), 0
        super().__init__(method, **options)
        self.path, self.calls, self.in_file = None if path is None else Path(path), 0, self.received
        self.resumed_from: str | None = None
        if self.path is not None and self.path.exists():
            content = load_state(self.path)
            if content.get("plan") != self.made_with():
                raise ValueError(
                    f"path: the state at {self.path} was made with {content.get('plan')}, asked for is "
                    f"{self.made_with()}; take another path."
                )
            self.put(self.stored_state(content["state"]))
            self.in_file = self.received
            self.resumed_from = (
                f"the actor goes on from {self.path}, after step {self.last_step}; what came later and was not sent "
                "again is lost."
            )

    def made_with(self) -> str:
        """The method and options, to compare."""
        path = None if self.path is None else str(self.path)
        return f"{self._described()}, path={path!r}, every={self.every}"

    def resumed(self) -> str | None:
        """A message if the state came from the file; None if it did not."""
        return self.resumed_from

    step = _then_written(AsynchronousEstimator.step)
    observe = _then_written(AsynchronousEstimator.observe)
    add_prior = _then_written(AsynchronousEstimator.add_prior)
    load_state_dict = _then_written(AsynchronousEstimator.load_state_dict)
    _merge = _then_written(AsynchronousEstimator.merge)

    def merge(self, delta: HistoryDelta) -> Sequence[tuple[str, int]]:  # type: ignore[override]
        """The origins that a crash would not lose, after `AsynchronousEstimator.merge`."""
        self._merge(delta)
        safe = self.received if self.path is None else self.in_file
        return [origin for origin in delta.origins if origin in safe]
