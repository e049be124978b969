"""Advantages where TRL's asynchronous trainer computes them: in its rollout worker, group by group.

The worker is a process of its own. The estimator that computes lives there; what it records travels to the trainer with
the completions (`kaestat.history.delta.HistoryDelta`), so that the trainer's checkpoints hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from trl.experimental.async_grpo.async_rollout_worker import RolloutGroup, RolloutSample, TrainingSequence

from kaestat.history.delta import HistoryDelta
from kaestat.integrations.shared.prompt_ids import UnstablePromptIds, hash_prompts
from kaestat.integrations.shared.session import TrainerSession

_NO_ROW = TrainingSequence([], [], [], "")  # of a conversation that left no token to train on

_Loop: Any = object  # TRL's, beside it among the bases


@dataclass(slots=True)
class RecordedSample(RolloutSample):
    """A sample that brings along what has been recorded since the last one that did.

    Attributes
    ----------
    delta : bytes or None
        `HistoryDelta.to_bytes`.
    """

    delta: bytes | None = None


class RecordingQueue:
    """The queue that a worker's samples come through, which hands on what they bring along.

    Parameters
    ----------
    queue : multiprocessing.Queue
        The worker's.
    record : callable
        Called with each delta.
    """

    def __init__(self, queue: Any, record: Callable[[HistoryDelta], None]):
        self._queue, self._record = queue, record

    def get(self, *args: Any, **kwargs: Any) -> RolloutSample:
        """The next sample; arguments and errors are the queue's."""
        sample = self._queue.get(*args, **kwargs)
        if isinstance(sample, RecordedSample) and sample.delta is not None:
            self._record(HistoryDelta.from_bytes(sample.delta))
        return sample

    def qsize(self) -> int:
        """How many samples wait."""
        return self._queue.qsize()


@dataclass(frozen=True, eq=False)
class GroupScorer:
    """What turns a group's rewards into advantages; goes to the worker's process as it starts.

    Attributes
    ----------
    session : TrainerSession
    prompt_id : str or None
    check_prompts : bool
        All as in `BaselineAsyncGRPOTrainer`.
    """

    session: TrainerSession
    prompt_id: str | None
    check_prompts: bool

    def advantages(self, group: RolloutGroup, rewards: np.ndarray, now: int) -> np.ndarray:
        """Advantages of a group's conversations, shape (G,); records them under the group's version.

        Parameters
        ----------
        group : RolloutGroup
        rewards : ndarray of float, shape (G,)
            NaN where a conversation has none: advantage 0, and not recorded.
        now : int
            Version of the policy at present.
        """
        scored = ~np.isnan(rewards)
        hashes = hash_prompts(group.prompts)
        ids: list[Hashable] = list(hashes) if self.prompt_id is None else _column_ids(group, self.prompt_id)
        lengths = [sum(sum(row.completion_mask) for row in rows) for rows in group.completions_sequences]
        return self.session.advantages(
            np.where(scored, rewards, 0.0),
            now,
            prompts=hashes if self.check_prompts else [repr(key) for key in ids],
            ids=ids,
            mask=scored,
            weights=lengths if self.session.weighs else None,
            version=np.full(len(rewards), group.model_version),
        )


class BaselineScoring(_Loop):
    """Mixin for the loop of TRL's rollout worker, to stand before it among the bases."""

    def __init__(self, *args: Any, scorer: GroupScorer, **kwargs: Any):
        self._scorer = scorer
        scorer.session.estimator.take_delta()  # the trainer has what was recorded before
        super().__init__(*args, **kwargs)

    async def _score_group(self, group: RolloutGroup) -> list[RolloutSample]:
        rows = group.completions_sequences
        # TRL returns a conversation's reward with its rows, so each is given one.
        whole = replace(group, completions_sequences=[of_one or [_NO_ROW] for of_one in rows])
        samples = await super()._score_group(whole)
        of_sample = np.repeat(np.arange(len(rows)), [max(len(of_one), 1) for of_one in rows])
        first = np.searchsorted(of_sample, np.arange(len(rows)))
        rewards = np.array([samples[at].metrics["reward"] for at in first])
        advantages = self._scorer.advantages(group, rewards, self.model_version)
        kept: list[RolloutSample] = []
        for sample, conversation in zip(samples, of_sample, strict=True):
            if rows[conversation]:
                sample.advantage = float(advantages[conversation])
                sample.metrics.update(self._scorer.session.metrics)
                kept.append(sample)
        return _with_delta(kept, self._scorer) if kept else kept


def baseline_loop(loop: type, scorer: GroupScorer, **kwargs: Any) -> Any:
    """A worker's loop that takes its advantages from a scorer; for the process that it runs in.

    Parameters
    ----------
    loop : type
        TRL's own, or a subclass of it.
    scorer : GroupScorer
    **kwargs
        Arguments of the loop.
    """
    return type(f"Baseline{loop.__name__}", (BaselineScoring, loop), {})(scorer=scorer, **kwargs)


def _with_delta(samples: list[RolloutSample], scorer: GroupScorer) -> list[RolloutSample]:
    delta = scorer.session.estimator.take_delta()
    if not len(delta):
        return samples
    held = {field.name: getattr(samples[0], field.name) for field in fields(samples[0])}
    return [RecordedSample(**held, delta=delta.to_bytes()), *samples[1:]]


def _column_ids(group: RolloutGroup, column: str) -> list[Hashable]:
    if column not in group.reward_kwargs:
        raise UnstablePromptIds(
            f"prompt_id={column!r}: the rows have no such column, only {', '.join(sorted(group.reward_kwargs))}. Name "
            "one that identifies the prompt, or leave prompt_id out: the history is then kept by a hash of the prompt."
        )
    return list(group.reward_kwargs[column])
