"""What of prime-rl 0.8 (commit 559b447) the adapter touches, written out in short from its source.

`modules` puts it where prime-rl's own modules are. Episodes are plain objects with the fields that are read.
"""

from collections import Counter
from types import SimpleNamespace

from tests.fakes.modules import add_module


class Algorithm:
    """prime_rl.orchestrator.algo.base"""

    action_loss_type = "rl"

    def __init__(self, config, policy_pool):
        self.policy_pool = policy_pool

    async def score_group(self, episodes):
        pass

    async def finalize_group(self, episodes):
        await self.score_group(episodes)


def iter_trainable_traces(episodes):
    for episode in episodes:
        for trace in episode.traces:
            if trace.has_error or not trace.agent.trainable:
                continue
            if any(any(node.mask) for node in trace.nodes):
                yield episode, trace


def assign_advantages(trace, value):
    """prime_rl.orchestrator.algo.routing, for one number per trace"""
    for node in trace.nodes:
        if any(node.mask):
            node.advantages = [value] * sum(node.mask)


class StandardSampler:
    """prime_rl.orchestrator.curriculum.samplers.standard"""

    def __init__(self, tasks):
        self.tasks = tuple(tasks)


class Curriculum:
    """prime_rl.orchestrator.curriculum.base, with the gate that rejects groups without any advantage"""

    def __init__(self, config, tasks):
        self.sampler = StandardSampler(tasks)

    def on_result(self, group):
        assert len({episode.task.key for episode in group}) == 1
        self.sampler.observe(group)
        return any(a != 0.0 for episode in group for t in episode.traces for node in t.nodes for a in node.advantages)

    def state_dict(self):
        return {"sampler": self.sampler.state_dict(), "gates": {}}

    def load_state_dict(self, state):
        self.sampler.load_state_dict(state["sampler"])


class TrainSource:
    """prime_rl.orchestrator.train_source, without the mixing of environments"""

    def __init__(self, train_envs):
        self.envs = list(train_envs)
        self.curricula = {env.name: Curriculum(None, list(env.tasks)) for env in self.envs}
        self.results = Counter()

    def next_task(self, *, step):
        name = self.envs[0].name
        return SimpleNamespace(env_name=name, task=next(self.curricula[name].sampler), step=step)

    def on_result(self, group):
        admitted = self.curricula[group[0].env.name].on_result(group)
        self.results[admitted] += 1
        return admitted

    def state_dict(self):
        return {"envs": {name: curriculum.state_dict() for name, curriculum in self.curricula.items()}}

    def load_state_dict(self, state):
        for name, curriculum in self.curricula.items():
            curriculum.load_state_dict(state["envs"][name])


def modules():
    """By name, fresh each time."""
    contents = {
        "prime_rl.orchestrator.algo": {"ALGORITHM_CLASSES": {}},
        "prime_rl.orchestrator.algo.base": {"Algorithm": Algorithm, "iter_trainable_traces": iter_trainable_traces},
        "prime_rl.orchestrator.algo.routing": {"assign_advantages": assign_advantages},
        "prime_rl.orchestrator.train_source": {"TrainSource": TrainSource},
        "prime_rl.orchestrator.orchestrator": {"TrainSource": TrainSource},
    }
    made = {}
    for name, content in contents.items():
        add_module(made, name, **content)
    return made
