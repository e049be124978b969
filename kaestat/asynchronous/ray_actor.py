"""One estimator in a Ray actor that many workers call."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

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
    asked = SavedEstimator(method, path=path, every=every, **options).plan()
    kept = {} if name is None else {"name": name, "get_if_exists": True}
    restarts = {} if path is None else {"max_restarts": -1}
    made = ray.remote(num_cpus=0)(SavedEstimator).options(**kept, **restarts)
    actor = made.remote(method, path=path, every=every, **options)
    found = ray.get(actor.plan.remote())
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


def _then_kept(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call of an estimator that changes its state, followed by the write of the file where one is due.

    If the file cannot be written, the call changes nothing, so a repeated call does not count twice.
    """

    @wraps(call)
    def kept(self: SavedEstimator, *args: Any, **options: Any) -> Any:
        before = self.estimator.state_snapshot() if self.is_due() else None
        found = call(self.estimator, *args, **options)
        try:
            self.keep()
        except BaseException:
            if before is not None:
                self.estimator.load_state_dict(before())
            raise
        return found

    return kept


class SavedEstimator:
    """The actor's content: an estimator and the file of its state."""

    def __init__(
        self,
        method: str | Baseline = DEFAULT_METHOD,
        *,
        path: str | os.PathLike[str] | None = None,
        every: int = 1,
        **options: Any,
    ):
        self.estimator = AsynchronousEstimator(method, **options)
        self._plan = f"{self.estimator!r}".partition(" before its first step")[0]
        self._path, self._every, self._calls = None if path is None else Path(path), check_whole("every", every), 0
        self._resumed: str | None = None
        self._in_file = self.estimator.received
        if self._path is not None and self._path.exists():
            content = load_state(self._path)
            if content.get("plan") != self.plan():
                raise ValueError(
                    f"path: the state at {self._path} was made with {content.get('plan')}, asked for is {self.plan()}; "
                    "take another path."
                )
            self.estimator = AsynchronousEstimator.of_content(content, self._path)
            self._in_file = self.estimator.received
            self._resumed = (
                f"the actor goes on from {self._path}, after step {self.estimator.last_step}; what came later and was "
                "not sent again is lost."
            )

    def plan(self) -> str:
        """The method and options, to compare."""
        return f"{self._plan}, path={None if self._path is None else str(self._path)!r}, every={self._every}"

    def resumed(self) -> str | None:
        """A message if the state came from the file; None if it did not."""
        return self._resumed

    step = _then_kept(AsynchronousEstimator.step)
    observe = _then_kept(AsynchronousEstimator.observe)
    add_prior = _then_kept(AsynchronousEstimator.add_prior)
    load_state_dict = _then_kept(AsynchronousEstimator.load_state_dict)

    _merge = _then_kept(AsynchronousEstimator.merge)

    def merge(self, delta: HistoryDelta) -> Sequence[tuple[str, int]]:
        """The origins that a crash would not lose, after `AsynchronousEstimator.merge`."""
        self._merge(delta)
        held = self.estimator.received if self._path is None else self._in_file
        return [origin for origin in delta.origins if origin in held]

    def is_due(self) -> bool:
        """Whether the next call that changes the state also writes the file."""
        return self._path is not None and self._calls + 1 >= self._every

    def keep(self) -> None:
        """Write the file if it is due."""
        if self._path is None or not self.is_due():
            self._calls += 1
            return
        save_state(self._path, self.estimator.content() | {"plan": self.plan()})
        self._in_file, self._calls = self.estimator.received, 0

    def advantages(self, *args: Any, **options: Any) -> Any:
        """`AsynchronousEstimator.advantages`."""
        return self.estimator.advantages(*args, **options)

    def predict(self, *args: Any, **options: Any) -> Any:
        """`AsynchronousEstimator.predict`."""
        return self.estimator.predict(*args, **options)

    def state_dict(self) -> dict[str, Any]:
        """`AsynchronousEstimator.state_dict`."""
        return self.estimator.state_dict()
