"""prime-rl: its train source and its algorithm, in the order in which its train sink calls them."""

import asyncio
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.baselines import Oracle
from kaestat.integrations.prime_rl import DrawnTasks, _tasks, install
from kaestat.integrations.shared import conformance
from kaestat.integrations.shared.session import TrainerSession
from tests.fakes import prime_rl_source
from tests.fakes.modules import put_in_place

KEYS = [f"task-{k}" for k in range(12)]


def kae():
    return AdvantageEstimator("kae", bandwidth=60.0)


def trace(reward, trainable=True, error=False):
    nodes = [SimpleNamespace(mask=[False, True, True], token_ids=[1, 2, 3], advantages=None)]
    return SimpleNamespace(
        id="t", reward=reward, has_error=error, agent=SimpleNamespace(trainable=trainable), nodes=nodes
    )


def group_of(request, rewards):
    run, env = SimpleNamespace(work=SimpleNamespace(step=request.step)), SimpleNamespace(name="math")
    return [SimpleNamespace(task=request.task, run=run, env=env, traces=[trace(reward)]) for reward in rewards]


class Orchestrator:
    """Dispatches ahead, and finishes groups in an order of their own, as the dispatcher and the train sink do."""

    def __init__(self, modules, group_size=4):
        algorithm = modules["prime_rl.orchestrator.algo"].ALGORITHM_CLASSES["grpo"]
        self.group_size = group_size
        self.env = SimpleNamespace(
            name="math",
            tasks=iter([SimpleNamespace(key=key, hash=f"hash of {key}") for key in KEYS]),
            algorithm=algorithm(SimpleNamespace(length_penalty=None), None),
            config=SimpleNamespace(group_size=group_size, curriculum=None),
        )
        self.source = modules["prime_rl.orchestrator.orchestrator"].TrainSource([self.env])
        self.done = 0

    @property
    def tasks(self):
        return self.source.curricula["math"].sampler

    def dispatch(self):
        return self.source.next_task(step=1 + self.done // 3)

    def finish(self, request):
        """Rewards and advantages of a finished group, and whether it was admitted."""
        number = KEYS.index(request.task.key)
        rng = np.random.default_rng([self.done, number])
        level = (0.02, 0.5, 0.98)[number % 3]
        rewards = (rng.random(self.group_size) < level).astype(float).tolist()
        group = group_of(request, rewards)
        asyncio.run(self.env.algorithm.finalize_group(group))
        self.done += 1
        found = [episode.traces[0].nodes[0].advantages for episode in group]
        return rewards, found, self.source.on_result(group)


@pytest.fixture
def orchestrator(monkeypatch):
    def make(group_size=4, estimator=kae, **options):
        modules = prime_rl_source.modules()
        put_in_place(monkeypatch, modules)
        install(estimator, groups_per_step=6, **options)
        return Orchestrator(modules, group_size)

    return make


class PrimeRlAdapter:
    """Conformance rows as groups that are scored one after the other, at the kit's step in place of the clock."""

    def __init__(self, estimator):
        algorithm = sys.modules["prime_rl.orchestrator.algo"].ALGORITHM_CLASSES["grpo"]
        algorithm.make_estimator = staticmethod(lambda: estimator)
        self.algorithm = algorithm(SimpleNamespace(length_penalty=None), None)

    def advantages(self, rows):
        self.algorithm.tasks = SimpleNamespace(clock=rows.step, correction=lambda group: 1.0)
        found = np.zeros(len(rows.ids))
        for uid in dict.fromkeys(rows.uids):
            own = [row for row in range(len(rows.ids)) if rows.uids[row] == uid and not rows.padding[row]]
            tasks = [SimpleNamespace(key=rows.ids[row], hash=rows.prompts[row]) for row in own]
            group = [
                SimpleNamespace(task=task, traces=[trace(rows.rewards[row])])
                for task, row in zip(tasks, own, strict=True)
            ]
            asyncio.run(self.algorithm.finalize_group(group))
            found[own] = [episode.traces[0].nodes[0].advantages[0] for episode in group]
        return found

    def state(self):
        return self.algorithm.session.state_dict()

    def restore(self, state):
        self.algorithm.session.load_state_dict(state)


# Each group is a step of its own: a prompt cannot have two groups at one, and no step comes twice.
CHECKS = [c for c in conformance.CHECKS if c not in (conformance.repeated_prompt, conformance.replayed_step)]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_integration_prime_rl_conforms(check, orchestrator):
    orchestrator()
    check(PrimeRlAdapter)


def test_integration_prime_rl_groups_of_one_are_refused_before_the_first(orchestrator):
    with pytest.raises(ValueError, match="group_size=1: rloo: "):
        orchestrator(group_size=1, estimator=lambda: AdvantageEstimator("rloo"))


@pytest.mark.parametrize("group_size", [4, 1])
def test_integration_prime_rl_groups_get_their_tasks_correction_and_all_enter_the_history(orchestrator, group_size):
    run, plain = orchestrator(group_size), kae()
    rng, flying, corrections = np.random.default_rng(0), [], []
    for clock in range(120):
        while len(flying) < 5:
            request = run.dispatch()
            flying.append((request, run.tasks.sampler.last_draw))
        name = [(request.task.key, request.step) for request, _ in flying]
        place = name.index(name[int(rng.integers(5))])  # of a task that went out twice at a step, the first
        request, draw = flying.pop(place)
        key = request.task.key
        rewards, found, _ = run.finish(request)
        factor = draw.correction_of([key])[0]
        expected = plain.step([key] * group_size, rewards, clock) * factor
        np.testing.assert_allclose(found, np.repeat(expected[:, None], 2, axis=1), rtol=1e-12)
        corrections.append(factor)
    assert run.tasks.clock == 120 and min(corrections) < 1 < max(corrections)
    assert run.tasks.metrics()["sampling/effective_completions"] <= 6 * group_size
    if group_size > 1:
        assert run.source.results[False] > 5  # rejected by the gate, and yet in the history


OF_OWN = Oracle(value=lambda ids, step: [len(key.split()) for key in ids])  # whatever it raises of other ids


@pytest.mark.parametrize("name", ["kae_eb", "james_stein", "spo", "gpg", "kae", "rloo", "bayes_filter", OF_OWN])
def test_integration_prime_rl_methods_that_compare_the_prompts_of_a_step_are_told(orchestrator, name):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        orchestrator(estimator=lambda: AdvantageEstimator(name))
    expected = name in ("kae_eb", "james_stein", "spo", "gpg", "bayes_filter")
    assert [f"method {name!r} compares the prompts" in str(each.message) for each in told] == [True] * expected


def test_integration_prime_rl_run_resumed_from_its_checkpoint_finishes_what_was_on_its_way(orchestrator):
    whole = orchestrator()
    for _ in range(20):
        whole.finish(whole.dispatch())
    flying = [whole.dispatch() for _ in range(3)]
    state = whole.source.state_dict()
    resumed = orchestrator()
    resumed.source.load_state_dict(state)
    resumed.done = whole.done
    again = [resumed.dispatch() for _ in range(3)]
    assert [request.task.key for request in again] == [request.task.key for request in flying]
    for first, second in zip(flying, again, strict=True):
        assert whole.finish(first) == resumed.finish(second)
    for _ in range(20):
        first, second = whole.dispatch(), resumed.dispatch()
        assert first.task.key == second.task.key and whole.finish(first) == resumed.finish(second)
    with pytest.raises(ValueError, match="DrawnTasks"):
        resumed.tasks.load_state_dict({"cursor": 3})


def test_integration_prime_rl_group_that_never_came_back_changes_nothing_and_is_forgotten(orchestrator):
    run = orchestrator()
    lost = run.dispatch()  # cancelled, of which no sampler is told
    for _ in range(6 * 3):
        run.done += 3  # a later step of prime-rl
        request = run.dispatch()
        factor = run.tasks.sampler.last_draw.correction_of([request.task.key])[0]
        assert run.tasks.correction(group_of(request, [1.0])) == factor
        run.finish(request)
    assert lost.task.key in str(run.tasks.state_dict()["waiting"])
    for _ in range(6 * 64):
        run.finish(run.dispatch())
    assert len(run.tasks.state_dict()["waiting"]) < 6
    with pytest.raises(ValueError, match="did not hand out"):
        run.finish(lost)


def test_integration_prime_rl_group_without_scored_traces_is_no_visit(orchestrator):
    run = orchestrator()
    group = group_of(run.dispatch(), [1.0])
    group[0].traces = [trace(1.0, error=True), trace(1.0, trainable=False)]
    for each in group[0].traces:
        each.nodes[0].advantages = []
    run.source.on_result(group)
    assert run.tasks.clock == 0 and run.env.algorithm.session.estimator.history is None
    with pytest.raises(ValueError, match="did not hand out"):
        run.source.on_result(group)


def test_integration_prime_rl_what_cannot_work_is_refused(orchestrator):
    run = orchestrator()
    with pytest.raises(ValueError, match="length_penalty"):
        type(run.env.algorithm)(SimpleNamespace(length_penalty=object()), None)
    same = [SimpleNamespace(key="a", hash="x")] * 2
    with pytest.raises(ValueError, match="same key"):
        DrawnTasks(same, TrainerSession(kae()), prompt_sampler="neyman", groups=1, group_size=1)
    with pytest.raises(ValueError, match="an environment without end"):
        _tasks(SimpleNamespace(sampler=SimpleNamespace(tasks=None)))


def test_integration_prime_rl_order_within_a_draw_does_not_depend_on_the_tasks(orchestrator):
    """A step may end within a draw: the first task of a draw is as often any of those drawn."""
    run, first = orchestrator(prompt_sampler="uniform"), []
    for _ in range(20):
        keys = [run.dispatch().task.key for _ in range(6)]
        first.append(run.tasks.sampler.last_draw.rows()[::4].index(keys[0]))
    assert len(set(first)) > 3
