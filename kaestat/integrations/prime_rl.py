"""Baselines and drawn tasks in prime-rl 0.8: an algorithm, and a task sampler saved in checkpoints.

prime-rl scores a group when it is complete, in any order, and several policies are active at a time. A group is scored
(`BaselineAlgorithmMixin.score_group`) and then reported to the sampler (`DrawnTasks.observe`) before anything else
happens, also where a gate rejects it afterwards. The rest is a `TrainerSession`. These things are particular to
prime-rl:

=========  =============================================================================================================
ids        ``Task.key``, checked against ``Task.hash``
step       finished groups: each is a step of the estimator, and bandwidths are in groups
versions   none: time is counted in groups
weights    none
filter     a gate drops groups after they are scored
draw       as a ``TaskSampler``, several groups at a time; a correction stays with its group until that is finished
state      one plain dict in the checkpoint of the curriculum; groups on their way are handed out again
=========  =============================================================================================================

docs/frameworks/prime-rl.md says what was run and what was read, and at which commit.
"""

import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kaestat.core.samples import Samples
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.changes import Call
from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.shared.tracked_sampler import TrackedSampler
from kaestat.integrations.shared.upstream import Upstream
from kaestat.sampling import Policy, PromptSampler

PRIME_RL = Upstream("prime-rl", "prime-rl", "prime-rl 0.8 at commit 559b447")
DRAWS_KEPT = 64  # a group that takes longer was cancelled, which the sampler does not see


class _Handed(NamedTuple):
    """A group's task that was drawn."""

    draw: int
    key: Hashable
    correction: float


class DrawnTasks(Iterator[Any]):
    """A ``TaskSampler`` of prime-rl that draws tasks by their predicted values, several groups at a time.

    A draw has ``groups`` groups, about as many as a training step, of ``group_size`` rollouts. The tasks are of one
    environment and have distinct keys; ``session`` scores its groups, and is saved with the sampler. Its step is the
    ``clock``, the number of finished groups.
    """

    def __init__(
        self,
        tasks: Sequence[Any],
        session: TrainerSession,
        *,
        prompt_sampler: str | Policy | PromptSampler,
        groups: int,
        group_size: int,
        seed: int = 0,
    ):
        self._task = {task.key: task for task in tasks}
        if not self._task or len(self._task) < len(tasks):
            raise ValueError("tasks: there are none, or two have the same key; each needs a key of its own.")
        ids, self.session = list(self._task), session
        self.sampler = session.sampler(
            prompt_sampler, ids, budget=groups * group_size, group_size=group_size, seed=seed
        )
        session.drawn = self._drawn = TrackedSampler(self.sampler, ids)
        self.clock = 0
        self._seed, self._draws = seed, 0
        self._next: deque[_Handed] = deque()
        self._out: list[tuple[int, _Handed]] = []  # prime-rl's step, and the task; dispatched and not finished

    def __next__(self) -> Any:
        """The task of the next group; `dispatched` follows."""
        if not self._next:
            self._draw()
        return self._task[self._next[0].key]

    def dispatched(self, step: int) -> None:
        """Record that the task of the last `next` goes out at prime-rl's ``step``, the one its episodes report."""
        self._out.append((step, self._next.popleft()))

    def correction(self, group: list[Any]) -> float:
        """The factor of a finished group's advantages; a ValueError if no such group is unfinished."""
        _, handed = self._out[self._place(group)]
        return handed.correction

    def observe(self, group: list[Any]) -> None:
        """Record a finished and scored group, rejected or not; prime-rl calls it."""
        place = self._place(group)
        traces = [trace for episode in group for trace in episode.traces]
        if any(trace.agent.trainable and not trace.has_error for trace in traces):
            self.clock += 1
        del self._out[place]

    def state_dict(self) -> dict[str, Any]:
        """Plain data for prime-rl's checkpoint: history, sampler, and unfinished groups."""
        saved = self.session.state_dict()
        return {
            "clock": self.clock,
            "draws": self._draws,
            "waiting": [tuple(handed) for handed in (*(out for _, out in self._out), *self._next)],
            "sampler": saved["sampler"],
            "estimator": saved["history"],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint; groups that were unfinished then are given out again."""
        if set(state) != {"clock", "draws", "waiting", "sampler", "estimator"}:
            raise ValueError("state: this checkpoint was not written with a DrawnTasks sampler; begin a new run.")
        self.session.load_state_dict({"history": state["estimator"], "sampler": state["sampler"]})
        self.clock, self._draws = state["clock"], state["draws"]
        self._next, self._out = deque(_Handed(*handed) for handed in state["waiting"]), []

    def metrics(self) -> dict[str, float]:
        """Figures of the last group and of the last draw."""
        return self.session.metrics

    def _draw(self) -> None:
        groups = self._drawn.draw_groups(self.clock)
        # A step may end within a draw, so the order must not depend on the tasks.
        np.random.default_rng([self._seed, self._draws]).shuffle(groups)
        self._next.extend(_Handed(self._draws, key, factor) for key, factor in groups)
        self._draws += 1
        self._out = [(step, handed) for step, handed in self._out if handed.draw >= self._draws - DRAWS_KEPT]

    def _place(self, group: list[Any]) -> int:
        """Where a finished group's task is; of one that went out twice at a step, the first."""
        key, at = group[0].task.key, group[0].run.work.step
        for place, (step, handed) in enumerate(self._out):
            if (handed.key, step) == (key, at):
                return place
        raise ValueError(f"a group of task {key!r} is finished that this sampler did not hand out.")


class BaselineAlgorithmMixin:
    """Mixin to put before prime-rl's ``Algorithm``; an `AdvantageEstimator` scores the groups."""

    make_estimator: Callable[[], AdvantageEstimator]
    session: TrainerSession
    tasks: DrawnTasks  # The environment's sampler, which holds the clock and the corrections

    def __init__(self, config: Any, policy_pool: Any):
        super().__init__(config, policy_pool)  # type: ignore[call-arg]  # prime-rl's, beside it among the bases
        if getattr(config, "length_penalty", None) is not None:
            raise ValueError("algo.length_penalty shapes rewards within a group; put it into the reward instead.")
        estimator = type(self).make_estimator()
        self.session = TrainerSession(estimator)
        if _compares_prompts(estimator):
            warnings.warn(
                f"method {estimator.method!r} compares the prompts of a step, but prime-rl scores one group at a "
                "time, so it is another method here; take one that looks at one prompt, such as 'kae' or 'rloo'.",
                stacklevel=2,
            )

    async def score_group(self, episodes: list[Any]) -> None:
        """Score a complete group when prime-rl calls; without await, so nothing comes in between."""
        from prime_rl.orchestrator.algo.base import iter_trainable_traces
        from prime_rl.orchestrator.algo.routing import assign_advantages

        pairs = list(iter_trainable_traces(episodes))
        keys: list[Hashable] = [episode.task.key for episode, _ in pairs]
        advantages = self.session.advantages(
            [trace.reward for _, trace in pairs],
            self.tasks.clock,
            prompts=[episode.task.hash for episode, _ in pairs],
            ids=keys,
            correction=np.full(len(pairs), self.tasks.correction(episodes)),
        )
        for (_, trace), advantage in zip(pairs, advantages.tolist(), strict=True):
            assign_advantages(trace, advantage)


def install(
    make_estimator: Callable[[], AdvantageEstimator],
    *,
    groups_per_step: int,
    prompt_sampler: str | Policy = "neyman",
    seed: int = 0,
) -> None:
    """Make the orchestrator in this process use our advantages for ``algo.type = "grpo"``, and our tasks.

    Parameters
    ----------
    make_estimator : callable
        Returns a new estimator for an environment, such as ``lambda: AdvantageEstimator("kae")``.
    groups_per_step : int
        ``batch_size / group_size``; the groups of a draw.
    prompt_sampler : str or Policy
        ``"uniform"`` draws all tasks equally, and only saves the history in the checkpoint.
    seed : int
    """
    with PRIME_RL.imports():
        import prime_rl.orchestrator.orchestrator as orchestrator
        from prime_rl.orchestrator.algo import ALGORITHM_CLASSES
        from prime_rl.orchestrator.algo.base import Algorithm
        from prime_rl.orchestrator.train_source import TrainSource

    made = {"make_estimator": staticmethod(make_estimator)}
    ALGORITHM_CLASSES["grpo"] = type("BaselineAlgorithm", (BaselineAlgorithmMixin, Algorithm), made)

    class DrawnTrainSource(TrainSource):
        def __init__(self, train_envs: Any):
            super().__init__(train_envs)
            for env in self.envs:
                if isinstance(env.algorithm, BaselineAlgorithmMixin):
                    env.algorithm.session.check_group_size("group_size", env.config.group_size)
                    self.curricula[env.name].sampler = env.algorithm.tasks = DrawnTasks(
                        _tasks(self.curricula[env.name]),
                        env.algorithm.session,
                        prompt_sampler=prompt_sampler,
                        groups=groups_per_step,
                        group_size=env.config.group_size,
                        seed=seed,
                    )

        def next_task(self, *, step: int) -> Any:
            request = super().next_task(step=step)
            sampler = self.curricula[request.env_name].sampler
            if isinstance(sampler, DrawnTasks):
                sampler.dispatched(step)
            return request

    orchestrator.TrainSource = DrawnTrainSource


def _compares_prompts(estimator: AdvantageEstimator) -> bool:
    """Whether the advantages of a group depend on the other groups of its step, by a trial that records nothing."""
    rewards = np.repeat([[1.0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]], 3, axis=0)
    try:
        whole, alone = (
            estimator.prepared("step", Call(), Samples(np.repeat(range(n), 4).tolist(), rewards[:n].ravel()), 0)
            for n in (len(rewards), 1)
        )
    except Exception:  # whatever a user's function of the run's own prompts raises; or it has begun
        return False
    return not np.allclose(whole.advantages[:4], alone.advantages)


def _tasks(curriculum: Any) -> Sequence[Any]:
    tasks = curriculum.sampler.tasks
    if tasks is None:
        raise ValueError("an environment without end has no prompts that come back; leave install() out.")
    return tasks
