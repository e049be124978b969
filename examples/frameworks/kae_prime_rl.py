#!/usr/bin/env python
"""Baselines of kaestat in prime-rl 0.8, read and tested at commit 559b447.

Copy this file as an executable ``bin/orchestrator`` and put it first in the path, since ``rl`` starts the command
``orchestrator``; with ``algo.type = "grpo"``, the default::

    PATH=$PWD/bin:$PATH rl @ rl.toml

It replaces the algorithm "grpo" and the class that holds the state of a run. prime-rl scores one group at a time, when
it is complete and before a gate may reject it. So time is counted in groups: bandwidths are in groups, and methods that
compare the prompts of a step have nothing to compare. A group counts when it is finished, however old its policy is.
The id of a prompt is ``Task.key``, checked against ``Task.hash``. The history of each environment is in the
orchestrator's checkpoints.
"""

import prime_rl.orchestrator.orchestrator as orchestrator
from prime_rl.orchestrator.algo import ALGORITHM_CLASSES
from prime_rl.orchestrator.algo.base import Algorithm, iter_trainable_traces
from prime_rl.orchestrator.algo.routing import assign_advantages
from prime_rl.orchestrator.train_source import TrainSource

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.session import TrainerSession


class BaselineAlgorithm(Algorithm):
    """An algorithm whose advantages are those of an estimator, one for each environment."""

    def __init__(self, config, policy_pool):
        super().__init__(config, policy_pool)
        if config.length_penalty is not None:
            raise ValueError("algo.length_penalty compares a group's lengths; put it into the reward instead.")
        self.session = TrainerSession(AdvantageEstimator("kae"))

    async def score_group(self, episodes):
        """Score a complete group; without await, so that no other group comes in between."""
        rows = list(iter_trainable_traces(episodes))
        if not rows:
            return
        found = self.session.advantages(
            [trace.reward for _, trace in rows],
            self.session.estimator.last_step + 1,
            prompts=[episode.task.hash for episode, _ in rows],
            ids=[episode.task.key for episode, _ in rows],
        )
        for (_, trace), advantage in zip(rows, found.tolist(), strict=True):
            assign_advantages(trace, advantage)


class BaselineTrainSource(TrainSource):
    """prime-rl's source of tasks, with the histories in its state."""

    @property
    def sessions(self):
        """The session of each environment that has one."""
        ours = [env for env in self.envs if isinstance(env.algorithm, BaselineAlgorithm)]
        return {env.name: env.algorithm.session for env in ours}

    def state_dict(self):
        """prime-rl's state, and the histories."""
        return super().state_dict() | {"kaestat": {name: each.state_dict() for name, each in self.sessions.items()}}

    def load_state_dict(self, state):
        """Continue from a state; one without a history for each environment is refused."""
        own = dict(state)
        histories = own.pop("kaestat", {})
        super().load_state_dict(own)
        for name, session in self.sessions.items():
            if name not in histories:
                session.lost(f"the checkpoint's environment {name}")
            session.load_state_dict(histories[name])


ALGORITHM_CLASSES["grpo"], orchestrator.TrainSource = BaselineAlgorithm, BaselineTrainSource

if __name__ == "__main__":
    from prime_rl.entrypoints.orchestrator import main

    main()
