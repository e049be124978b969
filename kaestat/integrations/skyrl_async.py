"""Baselines inside SkyRL's fully asynchronous trainer: versions of policies, and groups that are dropped.

SkyRL hands a step over as groups, each with ``global_step_when_scheduled``: the step that was worked on when its
generation began, so that the policy had been trained for one step less. Generation goes on over updates of the weights;
SkyRL does not tell which of them a completion has seen, so all of it counts as sampled by the policy it began with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kaestat.integrations.skyrl import SKYRL, BaselineTrainerMixin, RegisteredBaseline, prompts_of


class AsyncBaselineTrainerMixin(BaselineTrainerMixin):
    """Before SkyRL's fully asynchronous trainer: ``class Mine(AsyncBaselineTrainerMixin, FullyAsyncRayPPOTrainer)``.

    With an estimator of ``order="any"`` trajectories are recorded under the policy that their group was begun with,
    else under the step that they are trained in. Groups that ``trainer.fully_async.sample_full_batch`` drops are
    recorded, too; those that are left over at the end of an epoch only in any order, since they belong to no step.
    """

    _groups_of_step: Sequence[Any] = ()
    _dropped: Sequence[Any] = ()

    def convert_generation_group_mini_batch_to_training_input(
        self, cur_generation_group_mini_batch: list[Any], *dropped_groups: list[Any] | None
    ) -> Any:
        """SkyRL's, keeping the groups for the call of the estimator after it."""
        self._groups_of_step = cur_generation_group_mini_batch
        self._dropped = [group for groups in dropped_groups for group in groups or ()]
        return super().convert_generation_group_mini_batch_to_training_input(
            cur_generation_group_mini_batch, *dropped_groups
        )

    def compute_advantages_and_returns(self, data: Any) -> Any:
        """SkyRL's with the baseline, and the groups that were dropped recorded after it."""
        data = super().compute_advantages_and_returns(data)
        self._observe(self._dropped)
        self._groups_of_step = self._dropped = ()
        return data

    async def _collect_generation_mini_batch(self, *given: Any) -> tuple[list[Any], list[Any], bool]:
        kept, dropped, exhausted = await super()._collect_generation_mini_batch(*given)
        baseline = self.baseline
        if exhausted and baseline is not None and baseline.session.any_order:
            self._observe([*kept, *dropped])  # SkyRL trains on none of them
        return kept, dropped, exhausted

    def _versions_of_step(self) -> list[int] | None:
        baseline = self.baseline
        return None if baseline is None else _versions(baseline, self._groups_of_step)

    def _observe(self, groups: Sequence[Any]) -> None:
        """Record groups that get no advantage."""
        baseline = self.baseline
        if baseline is None or not groups or not baseline.session.stateful:
            return
        session, outputs = baseline.session, [group.generator_output for group in groups]
        uids = [str(group.uid) for group, output in zip(groups, outputs, strict=True) for _ in last_rows(output)]
        prompts = [prompt for output in outputs for prompt in prompts_of(output)]
        session.observe(
            [_reward(output["rewards"][row]) for output in outputs for row in last_rows(output)],
            self.global_step - 1,
            prompts=prompts if self.check_prompts else uids,
            ids=uids if self.check_prompts else None,
            weights=[tokens for output in outputs for tokens in tokens_in_loss(output)] if session.weighs else None,
            version=_versions(baseline, groups),
        )


def _versions(baseline: RegisteredBaseline, groups: Sequence[Any]) -> list[int] | None:
    """Step of the policy that each trajectory of some groups was begun with; None in strict order."""
    if not baseline.session.any_order:
        return None
    return [group.global_step_when_scheduled - 1 for group in groups for _ in last_rows(group.generator_output)]


def last_rows(generator_output: dict[str, Any]) -> list[int]:
    """The row of each trajectory's last step; without step-wise training every row is a trajectory.

    Examples
    --------
    >>> last_rows({"rewards": [0.0, 1.0, 1.0], "is_last_step": [False, True, True]})
    [1, 2]
    """
    last_steps = generator_output.get("is_last_step")
    rows = range(len(generator_output["rewards"]))
    return list(rows) if last_steps is None else [row for row in rows if last_steps[row]]


def tokens_in_loss(generator_output: dict[str, Any]) -> list[float]:
    """Tokens of each trajectory in the loss, all its steps together.

    Examples
    --------
    >>> masks = [[1, 1], [0, 1], [1]]
    >>> tokens_in_loss({"rewards": [0.0, 1.0, 1.0], "loss_masks": masks, "is_last_step": [False, True, True]})
    [3.0, 1.0]
    """
    ends = np.array(last_rows(generator_output)) + 1
    sums = np.concatenate([[0.0], np.cumsum([sum(mask) for mask in generator_output["loss_masks"]])])
    return np.diff(sums[ends], prepend=0.0).tolist()


def _reward(reward: float | list[float]) -> float:
    return float(sum(reward)) if isinstance(reward, list) else float(reward)


def __getattr__(name: str) -> Any:
    """``AsyncBaselineTrainer`` is made when asked for, since its base class is SkyRL's."""
    if name == "AsyncBaselineTrainer":
        with SKYRL.imports():
            from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer

        return type(name, (AsyncBaselineTrainerMixin, FullyAsyncRayPPOTrainer), {"__module__": __name__})
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
