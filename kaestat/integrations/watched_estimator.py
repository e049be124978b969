"""An `AdvantageEstimator` as trainers need it: ids watched, copies of a prompt told apart, states by step, metrics.

The adapters for trainers that hand over one flat list of completions (SkyRL, OpenRLHF, slime, and those of the recipes)
are thin translations into `WatchedEstimator.advantages`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import count
from typing import Any

import numpy as np

from kaestat.advantage import AdvantageEstimator
from kaestat.integrations.prompt_ids import IdentityCheck, UnstablePromptIds, hash_prompt
from kaestat.storage import load_state, save_state, unpack_arrays


class WatchedEstimator:
    """Advantages of one step's completions, with every way to train on a wrong history refused.

    Parameters
    ----------
    estimator : AdvantageEstimator
        Does all the mathematics and holds the history.
    states_kept : int
        After how many of the last steps the state is held for `state_dict`. Asynchronous trainers have rewards of later
        steps already when they save: take one more than the number of steps that they may be ahead.

    Attributes
    ----------
    metrics : dict of str to float
        Of the last step; see `advantages`.

    Examples
    --------
    >>> watched = WatchedEstimator(AdvantageEstimator("kae", bandwidth=10))
    >>> watched.advantages([1.0, 0.0], 0, prompts=["2+2=", "2+2="]).tolist()
    [1.0, -1.0]
    >>> watched.advantages([1.0, 0.0], 1, prompts=["2+2=", "2+2="]).round(3).tolist()
    [0.679, -0.679]
    >>> watched.metrics["baseline/known_prompts"]
    1.0
    """

    def __init__(self, estimator: AdvantageEstimator, *, states_kept: int = 3):
        if not isinstance(estimator, AdvantageEstimator):
            raise TypeError(f"estimator must be a kaestat.AdvantageEstimator, got {type(estimator).__name__}.")
        if isinstance(states_kept, bool) or not isinstance(states_kept, int) or states_kept < 1:
            raise ValueError(f"states_kept must be a whole number from 1 on, got {states_kept!r}.")
        self.estimator = estimator
        self.metrics: dict[str, float] = {}
        self._watch = IdentityCheck()
        self._states_kept = states_kept
        self._states: dict[int, dict[str, Any]] = {}  # step -> state after it

    @property
    def stateful(self) -> bool:
        """Whether values depend on earlier steps."""
        baseline = self.estimator.baseline
        return baseline.horizon > 0 or baseline.initial_carry() is not None

    def advantages(
        self,
        rewards: Sequence[float] | np.ndarray,
        step: int | None,
        *,
        prompts: Sequence[Any],
        ids: Sequence[Hashable] | None = None,
        groups: Sequence[Hashable] | None = None,
        mask: Sequence[bool] | np.ndarray | None = None,
        weights: Sequence[float] | np.ndarray | None = None,
    ) -> np.ndarray:
        """Advantages of one step's completions, all of them in one call; records their rewards.

        Parameters
        ----------
        rewards : sequence of float, shape (N,)
        step : int or None
            Training step; None if the trainer does not tell, which only methods without a history can do with.
        prompts : sequence, length N
            Each completion's prompt, as `hash_prompt` takes it.
        ids : sequence of hashables, length N, optional
            What the history is kept by; they are checked against the prompts. None takes the prompts' hashes.
        groups : sequence of hashables, length N, optional
            The trainer's own name of each completion's group; it may change from step to step. Only tells several
            groups of one prompt at one step apart: its k-th group, in the order of the rows, is its stream k.
        mask : sequence of bool, shape (N,), optional
            False for rows that are no completions (padding): advantage 0, and nothing of them is recorded.
        weights : sequence of float, shape (N,), optional
            See `AdvantageEstimator.step`.

        Returns
        -------
        ndarray of float64, shape (N,)

        Raises
        ------
        UnstablePromptIds
            If a prompt or an id is missing, an id names two prompts, or ids change from visit to visit.
        ValueError
            If a method with a history is given no step, and as `AdvantageEstimator.step` does.
        """
        reward = np.asarray(rewards, dtype=np.float64)
        keep = np.ones(len(reward), dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
        if step is None and self.stateful:
            raise ValueError(
                f"step: method {self.estimator.method!r} has a history and needs the training step, but the trainer "
                "gave none. Pass the trainer's step counter, the same after a resume as without one."
            )
        step = 0 if step is None else step
        for name, column in (("prompts", prompts), ("ids", ids), ("groups", groups), ("mask", mask)):
            if column is not None and len(column) != len(reward):
                raise ValueError(
                    f"{name} has {len(column)} entries for {len(reward)} rewards; give one per completion."
                )
        hashes = _hashes(prompts, keep)
        names = hashes if ids is None else list(ids)
        if ids is not None:
            kept = np.flatnonzero(keep)
            self._watch.check([names[k] for k in kept], [hashes[k] for k in kept], step)
        past = self._past(names, keep, step)
        advantages = self.estimator.step(
            names,
            reward,
            step,
            mask=keep,
            stream_ids=None if groups is None else copies(names, groups, keep),
            weights=weights,
        )
        self._keep_state(step)
        self.metrics = past | _metrics(reward[keep], self.estimator.values[keep], advantages[keep], names, keep)
        return advantages

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """The estimator's state as plain data (bytes, numbers, text), as of after ``step``.

        Parameters
        ----------
        step : int, optional
            The last step that belongs to the checkpoint. Asynchronous trainers have rewards of later steps already
            when they save, and see those steps again after a resume. None takes everything up to now.

        Raises
        ------
        ValueError
            If the state after that step is held no more.
        """
        states = self._states
        if step is None or not states or max(states) <= step:
            return self.estimator.state_dict()
        held = [at for at in states if at <= step]
        if not held:
            raise ValueError(
                f"step {step}: the state after it is not held any more, only those after steps {sorted(states)}; make "
                "the estimator with a larger states_kept."
            )
        return states[max(held)]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state of `state_dict`."""
        self.estimator.load_state_dict(state)
        self._watch, self._states, self.metrics = IdentityCheck(), {}, {}

    def save(self, path: str | os.PathLike, step: int | None = None) -> None:
        """Write the state to a file, atomically and without pickle; ``step`` as in `state_dict`."""
        save_state(path, {"watched": unpack_arrays(self.state_dict(step))})

    def load(self, path: str | os.PathLike) -> None:
        """Go on from a file of `save`.

        Raises
        ------
        FileNotFoundError
            If there is none.
        ValueError
            If it is torn, or of another method.
        """
        content = load_state(path)
        if "watched" not in content:
            raise ValueError(f"{path}: holds no state of a trainer's adapter.")
        self.load_state_dict(content["watched"])

    def _past(self, names: Sequence[Hashable], keep: np.ndarray, step: int) -> dict[str, float]:
        """How much is known of the step's prompts before its rewards are."""
        history = self.estimator.history
        if self.estimator.baseline.horizon == 0 or self.estimator.baseline.unit == "group":
            return {}
        distinct = list(dict.fromkeys(names[k] for k in np.flatnonzero(keep)))
        if history is None or not distinct:
            return {"baseline/known_prompts": 0.0, "baseline/past_completions": 0.0}
        rows = history.rows(distinct)
        counts = history.visits_of_rows(rows, step).count.sum(axis=-1)
        return {
            "baseline/known_prompts": float(np.mean(rows > 0)),
            "baseline/past_completions": float(np.mean(counts)),
        }

    def _keep_state(self, step: int) -> None:
        if not self.stateful:
            return
        states = self._states | {step: self.estimator.state_dict()}
        # A new dict each time: some trainers ask for a state from another thread.
        self._states = {at: states[at] for at in sorted(states)[-self._states_kept :]}


def copies(names: Sequence[Hashable], groups: Sequence[Hashable], mask: Sequence[bool] | np.ndarray) -> list[int]:
    """For each row, how many groups of the same prompt began before its own in the batch; 0 where masked.

    Examples
    --------
    >>> copies(["a", "b", "a", "a"], ["g1", "g2", "g3", "g1"], [True] * 4)
    [0, 0, 1, 0]
    """
    number: defaultdict[Hashable, count] = defaultdict(count)
    of_group: dict[tuple[Hashable, Hashable], int] = {}
    found = []
    for name, group, kept in zip(names, groups, mask, strict=True):
        if not kept:
            found.append(0)
            continue
        if (name, group) not in of_group:
            of_group[name, group] = next(number[name])
        found.append(of_group[name, group])
    return found


def _hashes(prompts: Sequence[Any], keep: np.ndarray) -> list[str | None]:
    """Hash of each kept row's prompt; equal texts and token ids are hashed once."""
    known: dict[Hashable, str] = {}
    found: list[str | None] = []
    for row, (prompt, kept) in enumerate(zip(prompts, keep, strict=True)):
        if not kept:
            found.append(None)
            continue
        if prompt is None or len(prompt) == 0:
            raise UnstablePromptIds(
                f"the prompt of row {row} is missing or empty, so the prompt has no id: let the trainer keep the "
                "prompt with its completions, or give an id of the data set."
            )
        plain = prompt.tolist() if hasattr(prompt, "tolist") else prompt
        try:
            key = plain if isinstance(plain, str) else tuple(plain)
            if key not in known:
                known[key] = hash_prompt(plain)
            found.append(known[key])
        except TypeError:  # chat messages are dicts, which no dict can be keyed by
            found.append(hash_prompt(plain))
    return found


def _metrics(
    reward: np.ndarray, values: np.ndarray, advantages: np.ndarray, names: Sequence[Hashable], keep: np.ndarray
) -> dict[str, float]:
    if not len(reward):
        return {}
    found = {
        "baseline/squared_error": float(np.mean((reward - values) ** 2)),
        "baseline/nonzero_advantages": float(np.mean(np.abs(advantages) > 1e-12)),
    }
    _, code, size = np.unique(
        np.array([repr(names[k]) for k in np.flatnonzero(keep)]), return_inverse=True, return_counts=True
    )
    mean = np.bincount(code, reward) / size
    squares = np.bincount(code, (reward - mean[code]) ** 2)
    several = size > 1
    if several.any():
        variance = squares[several] / (size[several] - 1)
        found["baseline/reward_variance"] = float(np.average(variance, weights=size[several]))
    return found
