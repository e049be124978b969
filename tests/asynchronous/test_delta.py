"""Deltas: what came in since, associative and commutative, and refused where they are torn or do not fit."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kaestat import AsynchronousEstimator
from kaestat.asynchronous.delta import HistoryDelta, concat, union
from kaestat.asynchronous.late_history import LateHistory
from tests.helpers.arrivals import METHODS, make, mixed, run, visits_of

seeds = st.integers(0, 2**32 - 1)


def deltas_of(seed, n=3, **weights) -> list[HistoryDelta]:
    """What several workers have recorded of one run."""
    workers = [AsynchronousEstimator("kae", keep_deltas=True) for _ in range(n)]
    for k, part in enumerate(mixed(run(seed), seed)):
        workers[k % n].observe(part.ids, part.reward, 13, version=part.version)
    return [worker.take_delta() for worker in workers]


def content(delta: HistoryDelta) -> dict:
    delta = delta.plain_visits()
    visits = zip(delta.row.tolist(), delta.step.tolist(), strict=True)
    return {
        (delta.keys[row], step): {name: column[place] for name, column in delta.sums.items()}
        for place, (row, step) in enumerate(visits)
    } | {"last_step": delta.last_step, "keys": set(delta.keys)}


@given(seed=seeds)
def test_merging_is_associative_and_commutative(seed):
    a, b, c = deltas_of(seed)
    assert content(a.merge(b)) == content(b.merge(a))
    assert content(a.merge(b).merge(c)) == content(a.merge(b.merge(c))) == content(union([c, a, b]))


@given(seed=seeds)
def test_bytes_give_the_delta_back(seed):
    for delta in (*deltas_of(seed), concat([], 4)):
        back = HistoryDelta.from_bytes(delta.to_bytes())
        assert content(back) == content(delta)
        assert (back.with_streams, back.weighting) == (delta.with_streams, delta.weighting)


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


@given(seed=seeds, horizon=st.sampled_from([3.0, 8.0, math.inf]), most=st.sampled_from([2, math.inf]))
@example(seed=59283530, horizon=3.0, most=2)  # one worker has recorded nothing
def test_histories_merge_whichever_is_merged_into_the_other(seed, horizon, most):
    deltas = deltas_of(seed, 2)
    merged = []
    for order in (deltas, deltas[::-1]):
        first, second = (LateHistory(horizon, max_visits=most, late=99) for _ in order)
        first.add(order[0])
        second.add(order[1])
        first.merge(second)
        merged.append(content(first.as_delta()))
    once = LateHistory(horizon, max_visits=most, late=99)
    once.add(union(deltas))
    assert merged[0] == merged[1] == content(once.as_delta())


def test_taking_a_delta_leaves_nothing_to_take():
    estimator = AsynchronousEstimator("kae", keep_deltas=True)
    assert len(estimator.take_delta()) == 0
    estimator.step(["a", "a"], [1.0, 0.0], 2)
    estimator.observe(["a"], [1.0], 3)
    delta = estimator.take_delta()
    assert content(delta)["a", 2] == {"count": 2, "total": 1.0, "total_sq": 1.0} and len(delta) == 2
    assert len(estimator.take_delta()) == 0 and estimator.take_delta().last_step == 3


def test_what_a_step_sends_is_of_its_own_size_however_long_the_run():
    rng, sizes = np.random.default_rng(0), []
    estimator = AsynchronousEstimator("kae", bandwidth=1000, keep_deltas=True)
    for step in range(100):
        ids = np.repeat(rng.choice(2000, 64, replace=False), 8)
        estimator.step(ids.tolist(), rng.integers(0, 2, len(ids)).astype(float), step)
        sizes.append(len(estimator.take_delta().to_bytes()))
    whole = len(estimator.history.as_delta().to_bytes())
    assert max(sizes) < 1.05 * sizes[0] and max(sizes) < whole / 40


def test_streams_and_weights_come_along():
    giver = AsynchronousEstimator("kae_stream", keep_deltas=True)
    taker = AsynchronousEstimator("kae_stream")
    giver.step(["a", "a"], [1.0, 0.0], 0, stream_ids=[0, 1], weights=[1.0, 2.0])
    taker.merge(HistoryDelta.from_bytes(giver.take_delta().to_bytes()))
    with pytest.raises(ValueError, match="stream_ids must be given at every step or at none"):
        taker.step(["a"], [1.0], 1, weights=[1.0])
    with pytest.raises(ValueError, match="weights must be given at every step or at none"):
        taker.step(["a"], [1.0], 1, stream_ids=[0])
    sample = {"stream_ids": [0, 1], "weights": [1.0, 1.0]}
    np.testing.assert_array_equal(*(e.step(["a", "a"], [0.0, 1.0], 1, **sample) for e in (giver, taker)))


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({}, {"weights": [1.0]}, "hold different sums"),
        ({"weights": [1.0]}, {"importance": [1.0]}, "weights and importance must be given by all workers or by none"),
    ],
)
def test_workers_that_record_different_things_are_told_so(first, second, said):
    workers = [AsynchronousEstimator("kae", keep_deltas=True) for _ in range(2)]
    for worker, sample in zip(workers, (first, second), strict=True):
        worker.step(["a"], [1.0], 0, **sample)
    deltas = [worker.take_delta() for worker in workers]
    with pytest.raises(ValueError, match=said):
        deltas[0].merge(deltas[1])
    before = workers[0].state_dict()
    with pytest.raises(ValueError, match=r"the delta has|by all workers or by none"):
        workers[0].merge(deltas[1])
    assert workers[0].state_dict() == before


def test_methods_without_a_history_have_nothing_to_merge():
    with pytest.raises(ValueError, match="'rloo' keeps no history"):
        AsynchronousEstimator("rloo").merge(concat([], 0))
    with pytest.raises(ValueError, match="deltas: give at least one"):
        union([])


def test_what_cannot_be_added_to_is_refused():
    delta = deltas_of(0, 1)[0]
    with pytest.raises(ValueError, match="this history keeps count, total, total_sq, weight"):
        LateHistory(weighted=True, late=9).add(delta)


DELTA = HistoryDelta(["a", "b"], np.array([0, 1]), np.array([3, 4]), {"count": np.ones(2)}, 5)
ALTERED = {
    "row": np.array([0, 2]),
    "step": np.array([3, 6]),
    "sums": {"count": np.ones(3)},
    "keys": ["a", "a"],
    "last_step": -2,
    "with_streams": 1,
    "weighting": True,
}


@pytest.mark.parametrize("part", ALTERED)
def test_altered_deltas_are_refused(part):
    plain = DELTA.plain()
    HistoryDelta.of_plain(plain)
    with pytest.raises(ValueError, match=r"delta|last_step"):
        HistoryDelta.of_plain(plain | {part: ALTERED[part]})
    with pytest.raises(ValueError, match="delta"):
        HistoryDelta.of_plain({name: value for name, value in plain.items() if name != part})
    with pytest.raises(ValueError, match="finite"):
        HistoryDelta.of_plain(plain | {"sums": {"count": np.array([1.0, np.nan])}})
    with pytest.raises(ValueError, match="two visits at one step"):
        HistoryDelta.of_plain(plain | {"row": np.array([0, 0]), "step": np.array([3, 3])})


def test_torn_bytes_are_refused():
    whole = DELTA.to_bytes()
    for torn in (whole[:-1], whole[:40], b"something else", whole[:-1] + bytes([whole[-1] ^ 1])):
        with pytest.raises(ValueError, match=r"^delta: "):
            HistoryDelta.from_bytes(torn)


def test_what_is_added_is_counted_so_that_summaries_of_the_history_are_renewed():
    history = LateHistory(late=9)
    for delta in deltas_of(0):
        before = history.records
        history.add(delta)
        assert history.records > before
