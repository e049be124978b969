"""Baselines of kaestat in rLLM, tested with commit 9beb6e0 of its main branch.

Copy this file beside the module that defines your agent. At the top of that module, which rLLM imports in the process
that trains, write::

    baseline = register(AdvantageEstimator())

and set ``rllm.algorithm.adv_estimator=kaestat``: rLLM takes every name that it does not know for "other". For one role
of an agent: ``register(AdvantageEstimator("rloo"), "kaestat_judge")``, and
``traj_group_adv_estimator_map={"judge": "kaestat_judge"}``.

rLLM passes no step: in on-policy training a step begins when a role comes again. Its fully asynchronous trainer calls
for each task; it needs ``AsynchronousEstimator("kae")``, which records late trajectories under the policy that sampled
them. rLLM saves no state of estimators: call ``baseline.save(path)`` and ``baseline.load(path)`` with its checkpoints.
"""

import numpy as np
from rllm.trainer.algorithms.advantage import RLLM_ADV_ESTIMATOR_REGISTRY, register_rllm_adv_estimator

from kaestat.integrations.shared.session import TrainerSession


def prompt_of(trajectory):
    """What identifies the prompt in every visit; change it where trajectories of one task begin with other tokens."""
    return tuple(trajectory.steps[0].prompt_ids)


class Baseline:
    """rLLM's interface: a call for all groups of one role."""

    def __init__(self, estimator):
        self.session = TrainerSession(estimator)
        self.roles, self.before = set(), 0  # roles that came in this step; policies of the runs that this one continues

    def __call__(self, rewards, algorithm_config=None, *, traj_groups, **_):
        """Advantages and returns, both the same: an array for each group."""
        session, role = self.session, traj_groups[0].group_role
        for group in traj_groups if session.stateful else ():
            if len(ids := {prompt_of(trajectory) for trajectory in group.trajectories}) > 1 or () in ids:
                raise ValueError("the prompt id is missing, or is not the same in a group: change prompt_of.")
        rows = [(group, trajectory) for group in traj_groups for trajectory in group.trajectories]
        turns = [[turn.weight_version for turn in trajectory.steps] for _, trajectory in rows]
        newest = np.array([max((version for version in each if version is not None), default=-1) for each in turns])
        late = {"version": newest + self.before} if session.any_order else {}
        if session.any_order and (newest.min() < 0 or len({group.task_id for group in traj_groups}) > 1):
            raise ValueError("AsynchronousEstimator is for rLLM's fully asynchronous trainer; take AdvantageEstimator.")
        if not session.any_order and session.stateful and newest.max() > 0:
            raise ValueError("rLLM's fully asynchronous trainer needs an AsynchronousEstimator.")
        last, begins = session.estimator.last_step, role in self.roles or not self.roles
        found = session.advantages(
            np.concatenate(rewards),
            max(last, int(late["version"].max())) if late else last + begins,
            prompts=[(role, prompt_of(own) if session.stateful else group.group_id) for group, own in rows],
            groups=[group.group_id for group, _ in rows],
            **late,
        )
        self.roles = {role} if begins else self.roles | {role}
        advantages = np.split(found, np.cumsum([len(each) for each in rewards])[:-1])
        return advantages, advantages

    def save(self, path):
        """Write the history."""
        self.session.save(path)

    def load(self, path):
        """Continue from a history; a new process counts its policies from 0, so they are counted on from the newest."""
        self.session.load(path)
        self.roles, self.before = set(), max(self.session.estimator.last_step, 0)


def register(estimator, name="other"):
    """Add a `Baseline` to rLLM's registry under a name that is free there."""
    if name in RLLM_ADV_ESTIMATOR_REGISTRY:
        raise ValueError(f"rLLM has an estimator {name!r} already; choose another name.")
    return register_rllm_adv_estimator(name)(Baseline(estimator))
