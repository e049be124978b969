"""Baselines in rLLM: an entry in its registry of advantage estimators.

rLLM calls an estimator for each role of an agent with the rewards of its groups: once a step in on-policy training,
once a task in fully asynchronous training. The rest is a `TrainerSession`. These things are particular to rLLM:

=========  =============================================================================================================
ids        the role and the tokens that trajectories began with, or a key of the task; ids of tasks are random
step       not passed: in strict order every call is a step, or one of its roles
versions   ``weight_version`` of the policy's turns, the newest of a trajectory; counted on after a load
weights    tokens that the policy sampled
filter     groups are scored before they are dropped
draw       none: no hook where rLLM chooses its tasks
state      rLLM does not save it: call `RegisteredBaseline.save` and `RegisteredBaseline.load` yourself
=========  =============================================================================================================

docs/frameworks/rllm.md says what was run and what was read, and at which commit.
"""

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.integrations.shared.prompt_ids import UnstablePromptIds
from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.shared.upstream import Upstream

# rLLM takes every unknown name in `rllm.algorithm.adv_estimator` for this one.
RLLM = Upstream("rLLM", "rllm", "its main branch at commit 9beb6e0")
OTHER = "other"


class RegisteredBaseline:
    """The entry in rLLM's registry; rLLM calls it like any of its advantage estimators.

    With an estimator in strict order each call is a step, for on-policy training. With a
    `kaestat.AsynchronousEstimator` the step is rLLM's policy version, ``weight_version``, for fully asynchronous
    training.

    Parameters
    ----------
    estimator : AdvantageEstimator
    task_key : str, optional
        Key of a trajectory's task with the id of the data's row. None uses the first tokens of the trajectories,
        which must be the same in a group.
    weights : {"none", "length"}
        Weight of each trajectory: none, or its sampled tokens. A ValueError if the estimator cannot use it.
    """

    def __init__(self, estimator: AdvantageEstimator, *, task_key: str | None = None, weights: str = "none"):
        self.session, self.task_key = TrainerSession(estimator, weights=weights), task_key
        self._roles: set[str] = set()  # roles that have had their call at this step
        self._before = 0  # policies of the runs that this one continues

    def __call__(
        self, rewards: Sequence[np.ndarray], algorithm_config: Any = None, traj_groups: Sequence[Any] = (), **_: Any
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Advantages and returns, both the same, (G,) for each group; rLLM's signature.

        ``rewards`` are those of the trajectories of each group, and all groups have the same role. The estimator has
        its own parameters, so ``algorithm_config`` is not used. Raises `UnstablePromptIds` if a method with a history
        cannot identify the prompts, and a ValueError if its order does not suit the trainer.
        """
        if len(traj_groups) != len(rewards):
            raise ValueError(
                f"traj_groups: {len(traj_groups)} groups for rewards of {len(rewards)}; rLLM's main branch of August "
                "2026 passes them; use that or a later one."
            )
        if not traj_groups:
            return [], []
        sizes = [len(group.trajectories) for group in traj_groups]
        trajectories = [trajectory for group in traj_groups for trajectory in group.trajectories]
        version = self._versions(traj_groups, trajectories)
        role = traj_groups[0].group_role
        if version is None:
            step, roles = self._step_of(role)
        else:
            step, roles = max(self.session.estimator.last_step, int(version.max())), set()
        advantages = self.session.advantages(
            np.concatenate([np.asarray(column, dtype=np.float64) for column in rewards]),
            step,
            prompts=[prompt for group in traj_groups for prompt in self._prompts(role, group)],
            groups=[group.group_id for group, size in zip(traj_groups, sizes, strict=True) for _ in range(size)],
            weights=[_sampled(trajectory) for trajectory in trajectories] if self.session.weighs else None,
            version=version,
        )
        self._roles = roles
        found = np.split(advantages, np.cumsum(sizes)[:-1])
        return found, found

    def save(self, path: str | Path) -> None:
        """Write the history to a file, atomically and without pickle."""
        self.session.save(path)

    def load(self, path: str | Path) -> None:
        """Continue from a file written by `save`; policies are numbered from the newest one in it."""
        self.session.load(path)
        self._roles, self._before = set(), max(self.session.estimator.last_step, 0)

    def _step_of(self, role: str) -> tuple[int, set[str]]:
        """The step of a call, which is a new one when a role comes again, and the roles that have been in it."""
        last = self.session.estimator.last_step
        if not self._roles or role in self._roles:
            return last + 1, {role}
        return last, self._roles | {role}

    def _versions(self, groups: Sequence[Any], trajectories: list[Any]) -> np.ndarray | None:
        """Policy of each trajectory, the newest of those that sampled it; None in strict order."""
        known = [
            [turn.weight_version for turn in trajectory.steps if turn.weight_version is not None]
            for trajectory in trajectories
        ]
        newest = np.array([max(versions, default=-1) for versions in known])
        if not self.session.any_order:
            if newest.max() > 0 and self.session.stateful:
                raise ValueError(
                    "rLLM's fully asynchronous trainer calls an estimator for every task, which in strict order would "
                    "be a step each; take a kaestat.AsynchronousEstimator."
                )
            return None
        if len({group.task_id for group in groups}) > 1:
            raise ValueError(
                "AsynchronousEstimator: rLLM's on-policy trainer does not count its policies; take an "
                "AdvantageEstimator, for which every call is a step."
            )
        if newest.min() < 0:
            raise ValueError(
                "AsynchronousEstimator: a trajectory has no weight_version, so the policy that sampled it is unknown; "
                "sample through rLLM's rollout engine or gateway, which write it on every step."
            )
        return newest + self._before

    def _prompts(self, role: str, group: Any) -> list[tuple[Any, ...]]:
        """The id of the group's prompt in the history, once for each trajectory."""
        size = len(group.trajectories)
        if not self.session.stateful:
            return [(role, group.group_id)] * size
        names = {self._name(trajectory) for trajectory in group.trajectories}
        if len(names) > 1:
            raise UnstablePromptIds(
                f"trajectories of group {group.group_id!r} began with {len(names)} different prompts: give the key of "
                "the task with the row's id as task_key=, or use a method without a history for this role."
            )
        return [(role, *names.pop())] * size

    def _name(self, trajectory: Any) -> tuple[Hashable, ...]:
        if self.task_key is None:
            prompt = trajectory.steps[0].prompt_ids
            if len(prompt) == 0:
                raise UnstablePromptIds(
                    "a trajectory has no prompt_ids: give the key of the task with the row's id as task_key=."
                )
            return tuple(prompt)
        task = trajectory.task if isinstance(trajectory.task, dict) else {}
        if task.get(self.task_key) is None:
            raise UnstablePromptIds(f"task_key: the task of a trajectory has no {self.task_key!r}.")
        return (task[self.task_key],)


def _sampled(trajectory: Any) -> int:
    """Tokens of a trajectory that the policy sampled."""
    return sum(len(turn.response_ids) for turn in trajectory.steps)


def register(
    estimator: AdvantageEstimator, name: str = OTHER, *, task_key: str | None = None, weights: str = "none"
) -> RegisteredBaseline:
    """Add a `RegisteredBaseline` to rLLM's registry, in the process that trains, and return it.

    Call it at the top of the module that defines the agent, which rLLM imports in the training process.

    Parameters
    ----------
    estimator, task_key, weights
        As of `RegisteredBaseline`.
    name : str
        Must be free. For a role: ``traj_group_adv_estimator_map={"solver": name}``. As the estimator of all roles, rLLM
        accepts only names of its own, and reads every other name as ``"other"``, the default.
    """
    with RLLM.imports():
        from rllm.trainer.algorithms.advantage import RLLM_ADV_ESTIMATOR_REGISTRY, register_rllm_adv_estimator

    if name in RLLM_ADV_ESTIMATOR_REGISTRY:
        raise ValueError(f"name: rLLM has an estimator {name!r} already; choose another name.")
    baseline = RegisteredBaseline(estimator, task_key=task_key, weights=weights)
    register_rllm_adv_estimator(name)(baseline)
    return baseline
