"""`TrainerSession`: what is the same in every trainer, between what it knows of a step and an estimator.

An adapter reads its trainer's fields and calls its hooks; everything else happens here, in one way for all trainers:

- **ids**: prompts are known by the data set's ids, checked against the prompts, or by a hash of the prompt.
- **step**: a method with a history is refused without one.
- **versions**: where the estimator takes completions in any order they are recorded under the policy that sampled them.
- **weights**: one choice for the run, refused where the method cannot use it; given at every step.
- **filter**: groups that the trainer drops are recorded (`observe`). In strict order a prompt has one place in a step,
  and one that is also trained on is left to that.
- **draw**: a sampler chooses prompts; advantages get the correction of their own draw; it is told all rewards. Of
  several rows of a data set with one prompt the first stands for all, and weighs more.
- **state**: history and sampler as of one step, in files of their own; a run that goes on without them is refused.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from kaestat.credit.turn_estimator import TurnEstimator
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.several_rewards import SeveralRewards
from kaestat.integrations.shared.tracked_estimator import tracked
from kaestat.integrations.shared.tracked_rows import TrackedRows
from kaestat.integrations.shared.tracked_sampler import TrackedSampler, sampler_of
from kaestat.integrations.shared.weights import LENGTH_ONLY, check_weights
from kaestat.sampling import Policy, PromptSampler

Path = str | os.PathLike[str]
NEW_RUN = "begin a new run"


class LostState(FileNotFoundError, ValueError):
    """A run goes on, but its checkpoint has no history, or no prompt sampler, to go on with."""


def lost_state(path: Path, what: str, remedy: str = NEW_RUN, *, anew: bool = False) -> None:
    """Raise a `LostState`, or with ``anew`` warn, for a checkpoint that lacks what the run would go on with."""
    if not anew:
        raise LostState(
            f"{os.fspath(path)}: this checkpoint was saved without {what}, which would begin anew in the middle of the "
            f"run. Resume from one that has it, or {remedy}."
        )
    # No logger: a dependency of vLLM sets the root logger to ERROR.
    warnings.warn(f"{os.fspath(path)} does not exist: {what} begins here.", stacklevel=4)


class TrainerSession:
    """An estimator inside a trainer.

    Another thread than the one that trains may ask for its states.

    Parameters
    ----------
    estimator : AdvantageEstimator, SeveralRewards or TurnEstimator
    weights : str
        Weight of each completion in averaging baselines, one of ``choices``.
    choices : sequence of str
        What the trainer can give; the first of them is no weights at all.
    option : str
        What the trainer's user calls ``weights``, for messages.
    states_kept : int
        After how many of the last steps states are held for `save`, for trainers that save a step after they have seen
        later ones: one more than the number of steps that they may be ahead.

    Attributes
    ----------
    history : TrackedEstimator
        The estimator with its rows tracked.
    drawn : TrackedSampler or None
        Where prompts are drawn; set by the adapter, made from `sampler`.

    Raises
    ------
    TypeError, ValueError
        If there is no estimator, or it cannot use these weights, or does not do without.

    Examples
    --------
    >>> session = TrainerSession(AdvantageEstimator("kae", bandwidth=10))
    >>> session.advantages([1.0, 0.0], 0, prompts=["2+2=", "2+2="]).tolist()
    [1.0, -1.0]
    >>> session.observe([1.0, 1.0], 0, prompts=["2+3=", "2+3="])  # a group that the trainer drops
    >>> session.advantages([0.0, 1.0], 1, prompts=["2+3=", "2+3="]).round(3).tolist()
    [-1.0, 0.0]
    """

    def __init__(
        self,
        estimator: AdvantageEstimator | SeveralRewards | TurnEstimator,
        *,
        weights: str = "none",
        choices: Sequence[str] = LENGTH_ONLY,
        option: str = "weights",
        states_kept: int = 0,
    ):
        self.history = tracked(estimator, states_kept)
        for each in self.history.parts().values():
            check_weights(each, weights, choices, option=option)
        self.weights, self.states_kept = weights, states_kept
        self.drawn: TrackedSampler | None = None
        self._no_weights = choices[0]
        self._trained: tuple[int, frozenset[Hashable]] = (-1, frozenset())  # the last step, and its prompts

    @property
    def estimator(self) -> Any:
        """The estimator that the session was made with."""
        return self.history.estimator

    @property
    def stateful(self) -> bool:
        """Whether values depend on earlier steps."""
        return self.history.stateful

    @property
    def any_order(self) -> bool:
        """Whether completions are recorded under the policy that sampled them, whenever they come."""
        return self.history.any_order

    @property
    def metrics(self) -> dict[str, float]:
        """Figures of the last step, ``baseline/NAME`` and ``sampling/NAME``."""
        return self.history.metrics | ({} if self.drawn is None else self.drawn.metrics)

    def sampler(
        self, given: str | Policy | PromptSampler, ids: Sequence[Hashable], *, filtered: str = "", **sizes: Any
    ) -> PromptSampler:
        """A sampler of the data set's prompts for this estimator, for a `TrackedSampler` in `drawn`.

        Parameters
        ----------
        given : str, Policy or PromptSampler
            A policy's name, a policy, or a sampler that fits.
        ids : sequence of hashables
            Prompt of each row.
        filtered : str
            The trainer's option that drops groups, where it is on.
        **sizes
            ``budget``, ``group_size``, ``seed``, ``repeats`` and ``params``, as `sampler_of`.

        Raises
        ------
        ValueError
            If the sampler does not fit, the estimator has several rewards or turns, or a filter chooses once more among
            the prompts whose choice is corrected.
        """
        if not isinstance(self.estimator, AdvantageEstimator):
            raise ValueError(
                f"prompt_sampler is of one reward per completion, not of {type(self.estimator).__name__}; leave it out."
            )
        sampler = sampler_of(given, ids, estimator=self.estimator, **sizes)
        if filtered and sampler.correction != "none":
            raise ValueError(
                f"{filtered} chooses among the prompts that were drawn, which their correction does not know of. Leave "
                'it or prompt_sampler out, or draw with correction="none".'
            )
        return sampler

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
        """Advantages of one step's completions; records their rewards.

        Parameters
        ----------
        rewards, step, prompts, ids, groups, mask
            As `TrackedEstimator.advantages` takes them.
        weights : sequence of float, shape (N,), optional
            Not looked at in a session without weights.
        version : sequence of int, shape (N,), optional
            Step of the policy that sampled each completion; not looked at in strict order.
        correction : ndarray of float, shape (N,), optional
            Factor of each advantage, where it travels with the rows and prompts are drawn. None takes those of the draw
            of this step.

        Returns
        -------
        ndarray of float64, shape (N,), or with turns a list of such arrays

        Raises
        ------
        UnstablePromptIds, ValueError, TypeError
            As `TrackedEstimator.advantages`; or if weights are missing, or prompts were not drawn.
        """
        given = self._given(weights)
        if self.drawn is not None and step is None:
            raise ValueError("prompt_sampler: a draw belongs to a training step, but the trainer gave none.")
        rows = self.history.rows(len(rewards), step, prompts, ids, groups, mask)
        kept = [key for key, keep in zip(rows.ids, rows.keep.tolist(), strict=True) if keep]
        factor = None
        if self.drawn is not None:
            factor = self.drawn.corrections(kept, rows.step) if correction is None else correction[rows.keep]
        found = self.history.of_rows("step", rewards, rows, given, version if self.any_order else None)
        self._trained = rows.step, frozenset(kept)
        if self.drawn is None:
            return found
        self.drawn.observe(kept, np.asarray(rewards, dtype=np.float64)[rows.keep], rows.step)
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

        Parameters and errors as `advantages`. Nothing happens where neither history nor sampler would learn of it.
        """
        if not (self.stateful or self.drawn is not None) or len(rewards) == 0:
            return
        given, rows = self._given(weights), self.history.rows(len(rewards), step, prompts, ids, groups, mask)
        rows = rows if self.any_order else self._of_untrained(rows)
        if not rows.keep.any():
            return
        if self.stateful:
            self.history.of_rows("observe", rewards, rows, given, version if self.any_order else None)
        if self.drawn is not None:
            kept = [key for key, keep in zip(rows.ids, rows.keep.tolist(), strict=True) if keep]
            self.drawn.observe(kept, np.asarray(rewards, dtype=np.float64)[rows.keep], rows.step)

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """History and sampler as plain data, as of after ``step`` (None: as they are); errors as `save`."""
        drawn = {} if self.drawn is None else {"sampler": self.drawn.sampler_state(step)}
        return {"history": self.history.state_dict(step), **drawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state of `state_dict`.

        Raises
        ------
        LostState
            If it is without the sampler's.
        """
        if self.drawn is not None and "sampler" not in state:
            lost_state("state", "a prompt sampler")
        self.history.load_state_dict(state["history"])
        self._trained = -1, frozenset()
        if self.drawn is not None:
            self.drawn.load_sampler_state(state["sampler"])

    def save(
        self, path: Path, sampler_path: Path | None = None, step: int | None = None, *, whole: bool = False
    ) -> None:
        """Write the states to files, atomically and without pickle.

        Parameters
        ----------
        path : path
            Of the history; not written for a method without one.
        sampler_path : path, optional
            Of the sampler, if there is one; None leaves it out.
        step : int, optional
            The last step that belongs to the checkpoint; None takes everything up to now.
        whole : bool
            Whether the history's file is one that `AdvantageEstimator.load` reads, of any method.

        Raises
        ------
        ValueError
            If the state after that step is held no more.
        """
        if whole:
            self.history.save_estimator(path)
        elif self.stateful:
            self.history.save(path, step)
        if self.drawn is not None and sampler_path is not None:
            self.drawn.save(sampler_path, step)

    def load(
        self, path: Path | None, sampler_path: Path | None = None, *, remedy: str = NEW_RUN, anew: bool = False
    ) -> None:
        """Go on from files of `save`, of either kind.

        Parameters
        ----------
        path, sampler_path : path, optional
            As in `save`; None leaves it out.
        remedy : str
            What else the user may do where a file is missing.
        anew : bool
            Whether a missing file is warned of only.

        Raises
        ------
        LostState
            If a file is missing that is needed: a history's, where the method has one, or a sampler's.
        ValueError
            If one is torn, or of another method.
        """
        self._trained = -1, frozenset()
        for owner, file, needed, what in (
            (self.history, path, self.stateful, self._what),
            (self.drawn, sampler_path, True, "a prompt sampler"),
        ):
            if owner is None or file is None:
                continue
            if os.path.exists(file):
                owner.load(file)
            elif needed:
                lost_state(file, what, remedy, anew=anew)

    def lost(self, path: Path, remedy: str = NEW_RUN) -> None:
        """Raise a `LostState` for a checkpoint without the history, for trainers with files of their own."""
        lost_state(path, self._what, remedy)

    @property
    def _what(self) -> str:
        return f"the history of {next(iter(self.history.parts().values())).method!r}"

    def _given(self, weights: Any) -> Any:
        if self.weights == self._no_weights:
            return None
        if weights is None:
            raise ValueError(f"weights={self.weights}: the trainer gave no weights for the completions of this step.")
        return weights

    def _of_untrained(self, rows: TrackedRows) -> TrackedRows:
        """The rows without those of prompts that are trained on at the same step."""
        step, trained = self._trained
        if rows.step != step:
            return rows
        return rows._replace(keep=rows.keep & np.array([key not in trained for key in rows.ids], dtype=bool))
