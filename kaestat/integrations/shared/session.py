"""`TrainerSession`: the common part of all trainers, between a trainer's step and an estimator.

An adapter reads its trainer's fields and calls its hooks; everything else happens here, in one way for all trainers:

- **ids**: prompts are known by the data set's ids, checked against the prompts, or by a hash of the prompt.
- **step**: a method with a history is refused without one.
- **groups**: a method that needs a group is refused where the first step has one completion of each prompt.
- **versions**: where the estimator takes completions in any order they are recorded under the policy that sampled them.
- **weights**: one choice for the run, refused where the method cannot use it; given at every step.
- **filter**: groups that the trainer drops are recorded (`observe`). In strict order a prompt has one place in a step,
  and one that is also trained on is left to that.
- **draw**: a sampler chooses prompts; advantages get the correction of their own draw; it sees all rewards. Of
  several rows of a data set with one prompt the first stands for all, and weighs more.
- **state**: history and sampler as of one step, in files of their own; a run that goes on without them is refused.
"""

import os
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from kaestat.core.checks import check_whole
from kaestat.core.storage import save_state, unpack_arrays
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.changes import Call
from kaestat.estimator.several_rewards import SeveralRewards
from kaestat.integrations.shared.session_files import (
    NEW_RUN,
    SAMPLER,
    HeldStates,
    Path,
    lost_state,
    save_whole,
    state_in,
)
from kaestat.integrations.shared.tracked_estimator import TrackedRows, check_group_size, tracked
from kaestat.integrations.shared.tracked_sampler import TrackedSampler, sampler_of
from kaestat.integrations.shared.weights import LENGTH_ONLY, check_weights
from kaestat.sampling import Policy, PromptSampler


class TrainerSession:
    """An estimator inside a trainer; threads other than the training one may ask for its states.

    Raises a TypeError or ValueError if there is no estimator, or it cannot use these weights, or needs weights.

    Parameters
    ----------
    estimator : AdvantageEstimator or SeveralRewards
    weights : str
        Weight of each completion in averaging baselines, one of ``choices``.
    choices : sequence of str
        The weights that the trainer can give; the first choice is no weights.
    option : str
        Name of the user's option for ``weights``, for messages.
    states_kept : int
        Number of last steps whose states are held, for trainers that save a step after later ones
        have begun: one more than the number of steps by which they may be ahead.

    Examples
    --------
    >>> session = TrainerSession(AdvantageEstimator("kae", bandwidth=10))
    >>> session.advantages([1.0, 0.0], 0, prompts=["2+2=", "2+2="]).tolist()
    [1.0, -1.0]
    >>> session.observe([1.0, 1.0], 0, prompts=["2+3=", "2+3="])  # a group that the trainer drops
    >>> session.advantages([0.0, 1.0], 1, prompts=["2+3=", "2+3="]).round(2).tolist()
    [-1.0, 0.36]
    """

    def __init__(
        self,
        estimator: AdvantageEstimator | SeveralRewards,
        *,
        weights: str = "none",
        choices: Sequence[str] = LENGTH_ONLY,
        option: str = "weights",
        states_kept: int = 0,
    ):
        check_whole("states_kept", states_kept, least=0)
        self._tracked = tracked(estimator)
        for each in self._tracked.parts().values():
            check_weights(each, weights, choices, option=option)
        self.weights, self._no_weights = weights, choices[0]
        self._drawn: TrackedSampler | None = None
        self._groups_suffice = False
        self._states = HeldStates(states_kept)
        self._trained: tuple[int, frozenset[Hashable]] = (-1, frozenset())  # the last step, and its prompts

    @property
    def estimator(self) -> Any:
        """The estimator that the session was made with."""
        return self._tracked.estimator

    @property
    def drawn(self) -> TrackedSampler | None:
        """The `TrackedSampler` that draws prompts; the adapter sets it, from `sampler`."""
        return self._drawn

    @drawn.setter
    def drawn(self, drawn: TrackedSampler) -> None:
        drawn.lock = self.estimator.lock  # one for both: a state is of one moment
        self._drawn = drawn

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy has locks of its own."""
        vars(self).update(state)
        if self._drawn is not None:
            self.drawn = self._drawn

    @property
    def stateful(self) -> bool:
        """Whether values depend on earlier steps."""
        return self._tracked.stateful

    @property
    def any_order(self) -> bool:
        """Whether completions may come at any time, recorded under the policy that sampled them."""
        return self._tracked.any_order

    @property
    def _remembers(self) -> bool:
        return self.stateful or self.drawn is not None

    @property
    def weighs(self) -> bool:
        """Whether completions have weights."""
        return self.weights != self._no_weights

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the last step, named ``baseline/NAME`` and ``sampling/NAME``; none before it."""
        own = self._tracked.metrics
        return {**own, **(self.drawn.metrics if own and self.drawn is not None else {})}

    def sampler(self, given: str | Policy | PromptSampler, ids: Sequence[Hashable], **options: Any) -> PromptSampler:
        """The sampler of the data set's prompts for this estimator; parameters and errors as `sampler_of`."""
        return sampler_of(given, ids, estimator=self.estimator, **options)

    def advantages(
        self,
        rewards: Any,
        step: int | None,
        *,
        prompts: Sequence[Any],
        ids: Sequence[Hashable] | None = None,
        groups: Sequence[Hashable] | None = None,
        mask: Sequence[bool] | np.ndarray | None = None,
        weights: Any = None,
        version: Sequence[int] | np.ndarray | None = None,
        correction: np.ndarray | None = None,
    ) -> Any:
        """Advantages of one step's completions, all of them in one call, float64 (N,); records their rewards.

        With several rewards ``rewards`` has a row for each completion.

        Parameters
        ----------
        step : int or None
            Training step; None if the trainer does not give it, which only methods without a history allow.
        prompts : sequence, length N
            Each completion's prompt, as `hash_prompt` takes it.
        ids : sequence of hashables, length N, optional
            Keys of the history; they are checked against the prompts. None uses the prompts' hashes.
        groups : sequence of hashables, length N, optional
            The trainer's own name of each completion's group; it may change from step to step. It only separates
            several groups of one prompt at one step: the k-th group, in the order of the rows, is stream k.
        mask : sequence of bool, shape (N,), optional
            False for rows that are not completions (padding): they get advantage 0 and are not recorded.
        weights : sequence of float, shape (N,), optional
            Required if the session has weights (`weighs`), and refused otherwise.
        version : sequence of int, shape (N,), optional
            Step of the policy that sampled each completion, only with `kaestat.AsynchronousEstimator`; a step may
            then come in several calls, and after later ones.
        correction : ndarray of float, shape (N,), optional
            Factor of each advantage, if prompts are drawn. None uses the factors of this step's draw.

        Raises
        ------
        UnstablePromptIds
            If a prompt or an id is missing, an id names two prompts, or ids change from visit to visit.
        ValueError, TypeError
            If a method with a history is given no step, or one that needs groups none at the first step, weights are
            missing, prompts were not drawn, an id is of a kind that a checkpoint cannot hold, and as
            `AdvantageEstimator.step`.
        """
        given, call = self._given(weights), Call()
        if self.drawn is not None and step is None:
            raise ValueError("prompt_sampler: a draw belongs to a training step, but the trainer gave none.")
        rows = self._tracked.rows(len(rewards), step, prompts, ids, groups, mask)
        kept, factor = rows.kept(), None
        if kept and not self._groups_suffice:
            self.check_group_size("completions of a prompt", rows.largest_group())
        with self.estimator.lock:
            if self.drawn is not None:
                factor = self.drawn.corrections(kept, rows.step) if correction is None else correction[rows.keep]
            found = self._tracked.recorded("step", call, rewards, rows, given, version)
            self._trained = rows.step, frozenset(kept)
            self._tell_sampler(kept, rewards, rows)
            self._keep_state()
        found = call.finish(found)
        if factor is None:
            return found
        corrected = np.zeros_like(found)
        corrected[rows.keep] = found[rows.keep] * factor
        return corrected

    def observe(
        self,
        rewards: Any,
        step: int | None,
        *,
        prompts: Sequence[Any],
        ids: Sequence[Hashable] | None = None,
        groups: Sequence[Hashable] | None = None,
        mask: Sequence[bool] | np.ndarray | None = None,
        weights: Any = None,
        version: Sequence[int] | np.ndarray | None = None,
    ) -> None:
        """Record completions of groups that the trainer drops, after the `advantages` of their step.

        A history of only the groups that pass a filter, mixed groups, has values pulled towards 1/2. `metrics` stay
        those of the last `advantages`. Parameters and errors as there.
        """
        if not self._remembers or len(rewards) == 0:
            return
        given, call = self._given(weights), Call()
        rows = self._tracked.rows(len(rewards), step, prompts, ids, groups, mask)
        with self.estimator.lock:
            rows = rows if self.any_order else self._of_untrained(rows)
            if not rows.keep.any():
                return
            if self.stateful:
                self._tracked.recorded("observe", call, rewards, rows, given, version)
            self._tell_sampler(rows.kept(), rewards, rows)
            self._keep_state()
        call.finish(None)

    def check_group_size(self, name: str, size: int) -> None:
        """Raise a ValueError unless the method suits groups of ``size`` completions; ``name`` is the user's for it.

        Where an adapter does not know the size before, the first step tells it.
        """
        for each in self._tracked.parts().values():
            check_group_size(each, name, size)
        self._groups_suffice = True

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """History and sampler as plain data (bytes, numbers, text), as they were after one step; None is the last.

        Asynchronous trainers already have rewards of later steps than that of a checkpoint, and repeat those steps
        after a resume. A ValueError if the state after that step is no longer held. While another thread computes a
        step, only held states are available at once.
        """
        state = None if step is None else self._states.of(step)
        if state is None:
            with self.estimator.lock:
                last = self.estimator.last_step
                if step is None or not self._remembers or last <= step:
                    state = self._snapshot()
                else:
                    state = self._states.after(step, last)
        return state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`; a `LostState` if the sampler's is missing."""
        if self.drawn is not None and "sampler" not in state:
            lost_state("state", SAMPLER)
        self._load_history(state["history"])
        if self.drawn is not None:
            self._load_sampler(state["sampler"])

    def save(
        self, path: Path, sampler_path: Path | None = None, step: int | None = None, *, whole: bool = False
    ) -> None:
        """Write the states to files, atomically and without pickle; ``step`` and errors as `state_dict`.

        Parameters
        ----------
        path, sampler_path : path
            Files of the history (not written for a method without one) and of the sampler; None leaves the latter out.
        whole : bool
            Whether `AdvantageEstimator.load` can read the history's file, for any method.
        """
        with self.estimator.lock:
            state = self.state_dict(step)
            if whole:
                save_whole(path, self.estimator, state["history"])
        if self.stateful and not whole:
            save_state(path, {self._tracked.keys[0]: unpack_arrays(state["history"])})
        if "sampler" in state and sampler_path is not None:
            save_state(sampler_path, {"sampler": unpack_arrays(state["sampler"])})

    def load(
        self, path: Path | None, sampler_path: Path | None = None, *, remedy: str = NEW_RUN, anew: bool = False
    ) -> None:
        """Continue from files written by `save`, of either kind; a path that is None is left out.

        Parameters
        ----------
        remedy : str
            What else the user can do if a file is missing.
        anew : bool
            Whether a missing file only causes a warning. If not, it raises a `LostState`.
        """
        if path is not None and os.path.exists(path):
            self._load_history(state_in(path, self._tracked.keys, self._tracked.kind.__name__))
        elif path is not None and self.stateful:
            self.lost(path, remedy, anew=anew)
        if self.drawn is None or sampler_path is None:
            return
        if os.path.exists(sampler_path):
            self._load_sampler(state_in(sampler_path, ("sampler",), "a prompt sampler"))
        else:
            lost_state(sampler_path, SAMPLER, remedy, anew=anew)

    def lost(self, path: Path, remedy: str = NEW_RUN, *, anew: bool = False) -> None:
        """`lost_state` for the history, for trainers with files of their own."""
        lost_state(path, f"the history of {next(iter(self._tracked.parts().values())).method!r}", remedy, anew=anew)

    def _given(self, weights: Any) -> Any:
        if self.weighs and weights is None:
            raise ValueError(f"weights={self.weights}: the trainer gave no weights for the completions of this step.")
        if weights is not None and not self.weighs:
            raise ValueError(f"weights: given to a session made with weights={self.weights!r}; make it with weights.")
        return weights

    def _load_history(self, state: Any) -> None:
        with self.estimator.lock:
            self.estimator.load_state_dict(state)
            self._tracked.forget()
            self._begin()

    def _load_sampler(self, state: Any) -> None:
        assert self.drawn is not None  # its callers have seen it
        with self.estimator.lock:
            self.drawn.sampler.load_state_dict(state)
            self.drawn.forget()
            self._begin()

    def _begin(self) -> None:
        """What has been loaded is the state of all steps before the first that comes from here on."""
        self._trained = -1, frozenset()
        self._states.clear()
        self._keep_state()

    def _tell_sampler(self, kept: list[Hashable], rewards: Any, rows: TrackedRows) -> None:
        if self.drawn is not None:
            self.drawn.sampler.observe(kept, np.asarray(rewards, dtype=np.float64)[rows.keep], rows.step)

    def _keep_state(self) -> None:
        if self._states.kept and self._remembers:
            # A call that comes late is in no state of the steps before the newest.
            self._states.put(self.estimator.last_step, self._snapshot())

    def _snapshot(self) -> Callable[[], dict[str, Any]]:
        history = self.estimator.state_snapshot()
        sampler = {} if self.drawn is None else {"sampler": self.drawn.sampler.state_dict()}
        return lambda: {"history": history(), **sampler}

    def _of_untrained(self, rows: TrackedRows) -> TrackedRows:
        """The rows without those of prompts that are trained on at the same step."""
        if rows.step != self._trained[0]:
            return rows
        untrained = [key not in self._trained[1] for key in rows.ids]
        return rows._replace(keep=rows.keep & np.array(untrained, dtype=bool))
