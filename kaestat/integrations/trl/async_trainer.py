"""`BaselineAsyncGRPOTrainer`: TRL's asynchronous GRPO trainer with another baseline.

Apart from `kaestat.integrations.trl` because TRL calls it experimental and may change it at any time. Tested with TRL
1.16.0 (`trl.experimental.async_grpo`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from trl.experimental.async_grpo import AsyncGRPOTrainer
from trl.experimental.async_grpo.async_rollout_worker import AsyncRolloutWorker, _AsyncRolloutLoop

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.trl.checkpoints import load_session, save_session
from kaestat.integrations.trl.group_scoring import GroupScorer, RecordingQueue, baseline_loop
from kaestat.integrations.trl.trainer import TRL

_HOOKS = (
    (AsyncGRPOTrainer, "_load_optimizer_and_scheduler"),
    (AsyncGRPOTrainer, "_save_checkpoint"),
    (AsyncRolloutWorker, "_loop_cls"),
    (AsyncRolloutWorker, "stop"),
    (AsyncRolloutWorker, "update_model_version"),
    (_AsyncRolloutLoop, "_score_group"),
    (_AsyncRolloutLoop, "model_version"),
)
_missing = [f"{of.__name__}.{hook}" for of, hook in _HOOKS if not hasattr(of, hook)]
if _missing:
    raise ImportError(TRL.misfit(f"TRL has no {', '.join(_missing)}"))

_OF_THE_BATCH = ("batch_std", "trl_batch", "informative")


class BaselineAsyncGRPOTrainer(AsyncGRPOTrainer):
    """An ``AsyncGRPOTrainer`` whose advantages come from an `AdvantageEstimator`.

    TRL scores a group as soon as its last conversation is over, in the process of its rollout worker. There the
    estimator gets it: every group that is scored is in the history, also those that TRL then drops because they are
    stale or too long. A step of the estimator is a version of the policy (``model_version``, one more with every weight
    sync); a group is recorded under the version that it was begun with, and looks back from it.

    Parameters
    ----------
    *args, **kwargs
        Those of ``AsyncGRPOTrainer``. A ``rollout_worker`` of your own must be an ``AsyncRolloutWorker``.
    advantage_estimator : AdvantageEstimator
        Made with ``order="any", keep_deltas=True``; it must be possible to pickle it, as everything that TRL hands to
        the worker. The worker has a copy; this one has what came with the samples that the trainer has taken, goes into
        every checkpoint (file `kaestat.integrations.trl.STATE_FILE`), and comes back on resume.
    prompt_id : str, optional
        Column of the data set that identifies the prompt, the same through the whole run. None takes a hash of the
        prompt that the model sees.
    weights : {"none", "length"}
        Weight of each completion in averaging baselines: none; its number of tokens in the loss.

    Attributes
    ----------
    check_prompts : bool
        As in `BaselineGRPOTrainer`: set it to False in a subclass where environments begin every conversation of a row
        with other words.

    Raises
    ------
    TypeError
        If ``advantage_estimator`` is none, or ``rollout_worker`` is no ``AsyncRolloutWorker``.
    ValueError
        If the estimator takes steps in order alone, keeps no deltas, or scales by the whole batch, which is never
        together here; or if weights are unknown or do not go with the method. During training, if a checkpoint has no
        state for an estimator that needs one. What goes wrong in the worker stops the run as TRL does, with a
        RuntimeError that shows the worker's own.

    Warns
    -----
    UserWarning
        If the method learns from the other prompts of a call, of which there are none.
    """

    check_prompts = True
    model_version: int
    rollout_queue: Any
    rollout_worker: Any

    def __init__(
        self,
        *args: Any,
        advantage_estimator: AdvantageEstimator,
        prompt_id: str | None = None,
        weights: str = "none",
        **kwargs: Any,
    ):
        _check_options(advantage_estimator, prompt_id)
        if not self.check_prompts and prompt_id is None:
            raise ValueError("check_prompts=False: without prompt_id the prompt itself is the id; name a column.")
        self.session = TrainerSession(advantage_estimator, weights=weights)
        super().__init__(*args, **kwargs)
        if not self.accelerator.is_main_process:
            return
        worker = self.rollout_worker
        if not isinstance(worker, AsyncRolloutWorker):
            raise TypeError(
                f"rollout_worker must be an AsyncRolloutWorker, got {type(worker).__name__}, which computes advantages "
                "in its own way: let it call kaestat.integrations.shared.session.TrainerSession."
            )
        scorer = GroupScorer(self.session, prompt_id, self.check_prompts)
        worker._loop_cls = partial(baseline_loop, worker._loop_cls, scorer)  # pickled as the worker starts
        worker.stop = partial(_stop, worker, worker.stop)
        self.rollout_queue = RecordingQueue(self.rollout_queue, self.session.merge)
        self._go_on_counting()

    @property
    def advantage_estimator(self) -> AdvantageEstimator:
        """The estimator that the trainer was made with."""
        return self.session.estimator

    def _go_on_counting(self) -> None:
        """No version comes twice: completions of two policies would be one visit."""
        self.model_version = max(self.model_version, self.advantage_estimator.last_step)
        self.rollout_worker.update_model_version(self.model_version)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.args.should_save:
            save_session(self, self.session, trial)
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None or not self.accelerator.is_main_process:
            return
        load_session(self, self.session, checkpoint)
        self._go_on_counting()  # TRL's own count is lost with its rollout_state.json, and for streamed data sets


def _stop(worker: AsyncRolloutWorker, stop: Callable[[], None]) -> None:
    """TRL's stop, which by itself waits for ever where the worker has failed and listens no more (TRL 1.16.0)."""
    if worker._process is not None and worker._failed_event.is_set():
        worker._process.kill()
        worker._process.join()
        worker._process = None
    stop()


def _check_options(estimator: Any, prompt_id: Any) -> None:
    made = 'kaestat.AdvantageEstimator("kae", bandwidth=10, order="any", keep_deltas=True)'
    if not isinstance(estimator, AdvantageEstimator):
        raise TypeError(f"advantage_estimator must be an AdvantageEstimator, got {estimator!r}; for example {made}.")
    if estimator.order != "any":
        raise ValueError(f"advantage_estimator: groups come in any order; make it as {made}.")
    estimator.take_delta()  # raises where none are kept
    if prompt_id is not None and not isinstance(prompt_id, str):
        raise TypeError(f"prompt_id must be the name of a column, or None, got {prompt_id!r}.")
    if estimator.scale.startswith(_OF_THE_BATCH):
        raise ValueError(
            f"advantage_estimator: scale {estimator.scale!r} takes the whole batch together, and here groups are "
            "scored one by one; pass scale='none' or a scale of the group."
        )
    if estimator.baseline.pools_prompts:
        warnings.warn(
            f"method {estimator.method!r} with these parameters learns from the other prompts of a step, and here "
            "groups are scored one by one: it knows the group's own prompt alone. Give it a bandwidth, or take a "
            "method that does not pool prompts.",
            stacklevel=3,
        )
