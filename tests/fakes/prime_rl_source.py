"""What of prime-rl 0.8 (commit 559b447) its recipe touches, written out in short from its source.

Episodes are plain objects with the fields that are read.
"""

from types import SimpleNamespace

from tests.fakes.modules import add_module


class Algorithm:
    """prime_rl.orchestrator.algo.base"""

    def __init__(self, config, policy_pool):
        self.policy_pool = policy_pool

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


class TrainSource:
    """prime_rl.orchestrator.train_source, with a counter in place of the curricula"""

    def __init__(self, train_envs):
        self.envs, self.cursor = list(train_envs), 0

    def state_dict(self):
        return {"rng": None, "envs": self.cursor}

    def load_state_dict(self, state):
        if set(state) != {"rng", "envs"}:
            raise ValueError("Train-source checkpoint fields must be rng and envs")
        self.cursor = state["envs"]


def modules():
    """By name, fresh each time."""
    made = {}
    add_module(made, "prime_rl.orchestrator.algo", ALGORITHM_CLASSES={})
    add_module(
        made, "prime_rl.orchestrator.algo.base", Algorithm=Algorithm, iter_trainable_traces=iter_trainable_traces
    )
    add_module(made, "prime_rl.orchestrator.algo.routing", assign_advantages=assign_advantages)
    for name in ("train_source", "orchestrator"):
        add_module(made, f"prime_rl.orchestrator.{name}", TrainSource=TrainSource)
    return made


def group_of(tasks, rewards, *, error=False):
    """A finished group: one trace for each reward, of tasks with these keys and hashes."""
    group = []
    for (key, name), reward in zip(tasks, rewards, strict=True):
        node = SimpleNamespace(mask=[False, True, True], advantages=None)
        agent = SimpleNamespace(trainable=True)
        trace = SimpleNamespace(reward=reward, has_error=error, agent=agent, nodes=[node])
        group.append(SimpleNamespace(task=SimpleNamespace(key=key, hash=name), traces=[trace]))
    return group
