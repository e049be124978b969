"""Deltas: what came in since, associative and commutative, and refused where they are torn or do not fit."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kaestat import AsynchronousEstimator
from kaestat.asynchronous.delta import HistoryDelta, RecordedVisits
from tests.helpers.arrivals import METHODS, make, mixed, run, visits_in, visits_of

seeds = st.integers(0, 2**32 - 1)


def deltas_of(seed, n=3) -> list[HistoryDelta]:
    """What several workers have recorded of one run."""
    workers = [AsynchronousEstimator("kae", keep_deltas=True) for _ in range(n)]
    for k, part in enumerate(mixed(run(seed), seed)):
        workers[k % n].observe(part.ids, part.reward, 13, version=part.version)
    return [worker.take_delta() for worker in workers]


def merged(*deltas: HistoryDelta) -> tuple[dict, int]:
    """All visits and the last step of an estimator that merges the deltas."""
    estimator = AsynchronousEstimator("kae", bandwidth=3, late=9)
    for delta in deltas:
        estimator.merge(delta)
    return {} if estimator.history is None else visits_in(estimator.history), estimator.last_step


@given(seed=seeds)
@example(seed=59283530)  # a worker has recorded nothing
def test_merging_is_associative_and_commutative(seed):
    a, b, c = deltas_of(seed)
    expected = merged(a, b, c)
    assert expected == merged(c, b, a) == merged(a.merge(b), c) == merged(c, b.merge(a))
    assert expected == merged(a.merge(b).merge(c)) == merged(a.merge(b.merge(c)), b)


@given(seed=seeds)
def test_bytes_give_the_delta_back(seed):
    for delta in (*deltas_of(seed), HistoryDelta(last_step=4)):
        back = HistoryDelta.from_bytes(delta.to_bytes())
        assert merged(back) == merged(delta) and back.origins == delta.origins and len(back) == len(delta)
        assert back.given == delta.given


@pytest.mark.parametrize("name", METHODS)
@given(seed=seeds)
def test_workers_that_merge_have_the_history_of_one_that_saw_it_all(name, seed):
    steps = run(seed)
    whole, workers = make(name, order="any"), [make(name, order="any", keep_deltas=True) for _ in range(3)]
    for k, part in enumerate(mixed(steps, seed)):
        whole.observe(part.ids, part.reward, 13, version=part.version)
        workers[k % 3].observe(part.ids, part.reward, 13, version=part.version)
        if k % 4 == 3:
            exchange(workers)
    exchange(workers)
    for worker in workers:
        assert visits_of(worker, 14) == visits_of(whole, 14) and worker.last_step == whole.last_step
    ids, reward = steps[-1].ids, steps[-1].reward
    whole.step(ids, reward, 14)
    for worker in workers:
        worker.step(ids, reward, 14)
        np.testing.assert_allclose(worker.values, whole.values, rtol=0, atol=1e-12)


def exchange(workers):
    taken = [worker.take_delta() for worker in workers]
    for worker in workers:
        for delta, sender in zip(taken, workers, strict=True):
            if sender is not worker:
                worker.merge(delta)


def test_taking_a_delta_leaves_nothing_to_take():
    estimator = AsynchronousEstimator("kae", keep_deltas=True)
    estimator.step(["a", "a"], [1.0, 0.0], 2)
    estimator.observe(["a"], [1.0], 3)
    delta = estimator.take_delta()
    assert merged(delta)[0]["a", 2] == {"count": 2, "total": 1.0, "total_sq": 1.0} and len(delta) == 2
    assert len(estimator.take_delta()) == 0 and estimator.take_delta().last_step == 3


def test_streams_and_weights_come_along():
    giver, taker = (AsynchronousEstimator("kae_stream", keep_deltas=True) for _ in range(2))
    giver.step(["a", "a"], [1.0, 0.0], 0, stream_ids=[0, 1], weights=[1.0, 2.0])
    taker.merge(HistoryDelta.from_bytes(giver.take_delta().to_bytes()))
    for lacks in ({"weights": [1.0]}, {"stream_ids": [0]}):
        with pytest.raises(ValueError, match="must be given at every step or at none"):
            taker.step(["a"], [1.0], 1, **lacks)
    sample = {"stream_ids": [0, 1], "weights": [1.0, 1.0]}
    np.testing.assert_array_equal(*(e.step(["a", "a"], [0.0, 1.0], 1, **sample) for e in (giver, taker)))


@pytest.mark.parametrize(("first", "second"), [({}, {"weights": [1.0]}), ({"weights": [1.0]}, {"importance": [1.0]})])
def test_workers_that_record_different_things_are_refused(first, second):
    workers = [AsynchronousEstimator("kae", keep_deltas=True) for _ in range(2)]
    for worker, sample in zip(workers, (first, second), strict=True):
        worker.step(["a"], [1.0], 0, **sample)
    deltas = [worker.take_delta() for worker in workers]
    before = workers[0].state_dict()
    for merge in (deltas[0].merge, workers[0].merge):
        with pytest.raises(ValueError, match="must each be given by all workers"):
            merge(deltas[1])
    assert workers[0].state_dict() == before


VISITS = RecordedVisits(
    ["a", "b"], np.array([0, 1]), np.array([3, 4]), dict.fromkeys(("count", "total", "total_sq"), np.ones(2))
)
DELTA = HistoryDelta({("sender", 1): VISITS}, 5, given="")


@pytest.mark.parametrize(
    "change",
    [
        *({"last_step": -2}, {"given": True}, {"origins": [["sender", 0]]}, {"parts": {}}, {"center": np.nan}),
        *({"row": np.array([0, 2])}, {"step": np.array([3, 6])}, {"sums": {"count": np.ones(2)}}, {"keys": ["a", "a"]}),
    ],
)
def test_corrupted_deltas_are_refused(change):
    whole = DELTA.plain()
    assert len(HistoryDelta.of_plain(whole)) == 2
    if not set(change) <= set(whole):
        change = {"parts": {"0": whole["parts"]["0"] | change}}
    with pytest.raises(ValueError, match=r"^delta: "):
        HistoryDelta.of_plain(whole | change)


def test_torn_bytes_are_refused():
    whole = DELTA.to_bytes()
    for torn in (whole[:-1], whole[:40], b"something else", whole[:-1] + bytes([whole[-1] ^ 1])):
        with pytest.raises(ValueError, match=r"^delta: "):
            HistoryDelta.from_bytes(torn)
