"""`TrainerSession`: the common part of all trainers, between a trainer's step and an estimator.

An adapter reads its trainer's fields and calls its hooks; all else happens here: ids are checked against the prompts,
completions are recorded under the policy that sampled them, weights are one choice for the run, groups that the trainer
drops are recorded (`observe`), advantages get the correction of a draw, and states have files of their own.
"""

import os
import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from kaestat.core.storage import load_state, save_state, unpack_arrays
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.several_rewards import SeveralRewards
from kaestat.integrations.shared.checked_rows import CheckedRows
from kaestat.integrations.shared.method_checks import LENGTH_ONLY, check_group_size, check_weights, looks_back
from kaestat.integrations.shared.metrics import step_metrics
from kaestat.integrations.shared.prompt_ids import IdentityCheck
from kaestat.integrations.shared.tracked_sampler import TrackedSampler, sampler_of
from kaestat.sampling import Policy, PromptSampler

Path = str | os.PathLike[str]
NEW_RUN = "begin a new run"


class LostState(FileNotFoundError, ValueError):
    """The error for a resumed run whose checkpoint lacks the history or the prompt sampler."""


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
    ):
        if not isinstance(estimator, AdvantageEstimator | SeveralRewards):
            raise TypeError(
                f"estimator must be a kaestat AdvantageEstimator, got {type(estimator).__name__}; for example "
                'AdvantageEstimator("kae").'
            )
        self.estimator: Any = estimator
        for each in self._parts.values():
            check_weights(each, weights, choices, option=option)
        self.weights, self._no_weights = weights, choices[0]
        self._drawn: TrackedSampler | None = None
        self._groups_suffice = False
        self._trained: tuple[int, frozenset[Hashable]]  # the last step, and its prompts
        self._forget()

    @property
    def _parts(self) -> dict[str, AdvantageEstimator]:
        """The estimators of single rewards, by the prefix of their metrics' names."""
        if isinstance(self.estimator, SeveralRewards):
            return {f"{name}/": each for name, each in self.estimator.estimators.items()}
        return {"": self.estimator}

    @property
    def drawn(self) -> TrackedSampler | None:
        """The `TrackedSampler` that draws prompts; the adapter sets it, from `sampler`."""
        return self._drawn

    @drawn.setter
    def drawn(self, drawn: TrackedSampler) -> None:
        drawn.lock = self.estimator.lock  # one for both: a state is of one moment
        self._drawn = drawn

    @property
    def stateful(self) -> bool:
        """Whether values depend on earlier steps."""
        return any(looks_back(each.baseline) for each in self._parts.values())

    @property
    def any_order(self) -> bool:
        """Whether completions may come at any time, recorded under the policy that sampled them."""
        return all(each.order == "any" for each in self._parts.values())

    @property
    def weighs(self) -> bool:
        """Whether completions have weights."""
        return self.weights != self._no_weights

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the last step, named ``baseline/NAME`` and ``sampling/NAME``; none before it."""
        own = self._metrics
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
            The trainer's own name of each completion's group, which separates groups of one prompt at one step.
        mask : sequence of bool, shape (N,), optional
            False for rows that are not completions (padding): they get advantage 0 and are not recorded.
        weights : sequence of float, shape (N,), optional
            Required if the session has weights (`weighs`), and refused otherwise.
        version : sequence of int, shape (N,), optional
            Step of the policy that sampled each completion, only with `kaestat.AsynchronousEstimator`.
        correction : ndarray of float, shape (N,), optional
            Factor of each advantage, if prompts are drawn. None uses the factors of this step's draw.

        Raises
        ------
        UnstablePromptIds
            If a prompt or an id is missing, an id names two prompts, or ids change from visit to visit.
        ValueError, TypeError
            If step, groups or weights that the method needs are missing, prompts were not drawn, an id is of a kind
            that a checkpoint cannot hold, and as `AdvantageEstimator.step`.
        """
        if self.drawn is not None and step is None:
            raise ValueError("prompt_sampler: a draw belongs to a training step, but the trainer gave none.")
        rows = self._rows(rewards, step, weights, version, prompts, ids, groups, mask)
        kept, factor = rows.kept(), None
        if kept and not self._groups_suffice:
            self.check_group_size("completions of a prompt", rows.largest_group())
        with self.estimator.lock:
            if self.drawn is not None:
                factor = self.drawn.corrections(kept, rows.step) if correction is None else correction[rows.keep]
            found = self.estimator.step(**rows.arguments(rewards, weights, version))
            self._metrics = {
                f"baseline/{part}{figure}": value
                for part, each in self._parts.items()
                for figure, value in step_metrics(each.record).items()
            }
            self._trained = rows.step, frozenset(kept)
            self._give_to_sampler(kept, rewards, rows)
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
        if not (self.stateful or self.drawn is not None) or len(rewards) == 0:
            return
        rows = self._rows(rewards, step, weights, version, prompts, ids, groups, mask)
        with self.estimator.lock:
            if not self.any_order and rows.step == self._trained[0]:
                untrained = np.array([key not in self._trained[1] for key in rows.ids], dtype=bool)
                rows = rows._replace(keep=rows.keep & untrained)
            if not rows.keep.any():
                return
            if self.stateful:
                self.estimator.observe(**rows.arguments(rewards, weights, version))
            self._give_to_sampler(rows.kept(), rewards, rows)

    def check_group_size(self, name: str, size: int) -> None:
        """Raise a ValueError unless the method suits groups of ``size`` completions; ``name`` is the user's for it."""
        for each in self._parts.values():
            check_group_size(each, name, size)
        self._groups_suffice = True

    def state_dict(self) -> dict[str, Any]:
        """History and sampler as plain data (bytes, numbers, text)."""
        with self.estimator.lock:
            sampler = {} if self.drawn is None else {"sampler": self.drawn.sampler.state_dict()}
            return {"history": self.estimator.state_dict(), **sampler}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`; a `LostState` if the sampler's is missing."""
        if self.drawn is not None and "sampler" not in state:
            self.lost("state", "a prompt sampler")
        with self.estimator.lock:
            self.estimator.load_state_dict(state["history"])
            self._load_sampler(state.get("sampler"))
            self._forget()

    def save(self, path: Path, sampler_path: Path | None = None, *, state: dict[str, Any] | None = None) -> None:
        """Write ``state``, a result of `state_dict`, or the state now, to files, atomically and without pickle."""
        with self.estimator.lock:
            whole, state = state is None, state or self.state_dict()
            try:
                if whole:
                    self.estimator.save(path)
            except TypeError:
                whole = False
        if not whole:
            save_state(path, {"state": unpack_arrays(state["history"])})
        if "sampler" in state and sampler_path is not None:
            save_state(sampler_path, {"sampler": unpack_arrays(state["sampler"])})

    def load(
        self, path: Path | None, sampler_path: Path | None = None, *, remedy: str = NEW_RUN, anew: bool = False
    ) -> None:
        """Continue from files written by `save`; a missing one raises a `LostState`, or with ``anew`` a warning."""
        with self.estimator.lock:
            if path is not None and os.path.exists(path):
                self.estimator.load_state_dict(_state_in(path, "state", type(self.estimator).__name__))
            elif path is not None and self.stateful:
                self.lost(path, remedy=remedy, anew=anew)
            if self.drawn is not None and sampler_path is not None:
                if os.path.exists(sampler_path):
                    self._load_sampler(_state_in(sampler_path, "sampler", "a prompt sampler"))
                else:
                    self.lost(sampler_path, "a prompt sampler", remedy=remedy, anew=anew)
            self._forget()

    def lost(self, path: Path, what: str | None = None, *, remedy: str = NEW_RUN, anew: bool = False) -> None:
        """Raise a `LostState`, or warn with ``anew``, for a checkpoint that lacks the history or another state."""
        what = what or f"the history of {next(iter(self._parts.values())).method!r}"
        if not anew:
            raise LostState(
                f"{os.fspath(path)}: this checkpoint was saved without {what}, which would begin anew in the middle of "
                f"the run. Resume from one that has it, or {remedy}."
            )
        # No logger: a dependency of vLLM sets the root logger to ERROR.
        warnings.warn(f"{os.fspath(path)} does not exist: {what} begins here.", stacklevel=3)

    def _rows(self, rewards: Any, step: int | None, weights: Any, version: Any, *columns: Any) -> CheckedRows:
        """The rows of a call, checked; `columns` as `CheckedRows.of` takes them."""
        if self.weighs and weights is None:
            raise ValueError(f"weights={self.weights}: the trainer gave no weights for the completions of this step.")
        if weights is not None and not self.weighs:
            raise ValueError(f"weights: given to a session made with weights={self.weights!r}; make it with weights.")
        if version is not None and not self.any_order:
            raise ValueError("version: this estimator takes steps in order; take a kaestat.AsynchronousEstimator.")
        if step is None and self.stateful:
            method = next(each.method for each in self._parts.values() if looks_back(each.baseline))
            raise ValueError(
                f"step: method {method!r} has a history and needs the training step, but the trainer gave "
                "none. Pass the trainer's step counter, the same after a resume as without one."
            )
        return CheckedRows.of(len(rewards), 0 if step is None else step, self._identity, *columns)

    def _give_to_sampler(self, kept: list[Hashable], rewards: Any, rows: CheckedRows) -> None:
        if self.drawn is not None:
            self.drawn.sampler.observe(kept, np.asarray(rewards, dtype=np.float64)[rows.keep], rows.step)

    def _load_sampler(self, state: Any) -> None:
        if self.drawn is not None:
            self.drawn.sampler.load_state_dict(state)
            self.drawn.forget()

    def _forget(self) -> None:
        """Forget ids, metrics and prompts of earlier steps."""
        self._identity, self._metrics = IdentityCheck(), dict[str, float]()
        self._trained = -1, frozenset()


def _state_in(path: Path, key: str, what: str) -> dict[str, Any]:
    """The state under a key of a file; a ValueError if there is none or the file is damaged."""
    state = load_state(path).get(key)
    if not isinstance(state, dict):
        raise ValueError(f"{os.fspath(path)}: holds no state of {what}, as a trainer saves it.")
    return state
