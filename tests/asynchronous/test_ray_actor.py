"""Workers in processes of their own that call one actor get, and leave, what one process would."""

import os
import sys

import numpy as np
import pytest

from kaestat import AdvantageEstimator, AsynchronousEstimator
from kaestat.asynchronous.ray_actor import estimator_actor
from tests.helpers.arrivals import run

ray = pytest.importorskip("ray", reason="Ray is not installed (pip install -e '.[ray]'); its actor was not tested")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
    ray.init(num_cpus=2, runtime_env={"env_vars": {"PYTHONPATH": path}}, **quiet)
    yield
    ray.shutdown()


def test_two_workers_share_the_history_of_an_actor():
    steps = run(1, 10)

    @ray.remote(num_cpus=1)
    class Worker:  # has a process to itself, which a task may share
        def work(self, number):
            actor = estimator_actor("kae", name="shared", bandwidth=6.0)
            for step, part in enumerate(steps):
                own = part.part(np.arange(len(part)) % 2 == number)
                if len(own):
                    ray.get(actor.step.remote(own.ids, own.reward, step))
            return os.getpid()

    actor, whole = estimator_actor("kae", name="shared", bandwidth=6.0), AdvantageEstimator("kae", bandwidth=6.0)
    workers = [Worker.remote() for _ in range(2)]
    pids = ray.get([worker.work.remote(number) for number, worker in enumerate(workers)])
    assert len({*pids, os.getpid()}) == 3
    for step, part in enumerate(steps):
        whole.step(part.ids, part.reward, step)
    np.testing.assert_array_equal(
        ray.get(actor.step.remote([0, 0, 1], [1.0, 0.0, 1.0], 10)), whole.step([0, 0, 1], [1.0, 0.0, 1.0], 10)
    )
    resumed = AsynchronousEstimator("kae", bandwidth=6.0)
    resumed.load_state_dict(ray.get(actor.state_dict.remote()))
    np.testing.assert_array_equal(resumed.predict([0, 1], 11).value, whole.predict([0, 1], 11).value)


def test_an_estimator_that_cannot_be_is_refused_before_an_actor_starts():
    with pytest.raises(ValueError, match="keeps a running state"):
        estimator_actor("bayes_filter", name="refused")
    assert "refused" not in [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
