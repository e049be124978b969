"""Time as data: whatever the order in which completions come, and whatever comes late, the same history and values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaestat import AdvantageEstimator, AsynchronousEstimator
from kaestat.smoothing.kernels import as_kernel
from tests.helpers.arrivals import LEARNED, METHODS, WEIGHTED, make, mixed, run, visits_of

seeds = st.integers(0, 2**32 - 1)
every_method = pytest.mark.parametrize("name", METHODS)


def given_to(part, name, weighted, **more):
    return {"weights": part.weight} | more if weighted else more


def in_order(name, steps, *, order="any", weighted=False):
    estimator = make(name, order=order)
    for step, part in enumerate(steps):
        estimator.step(part.ids, part.reward, step, **given_to(part, name, weighted))
    return estimator


def last_values(estimator, steps, weighted=False):
    part = steps[-1]
    estimator.step(part.ids, part.reward, len(steps) - 1, **given_to(part, None, weighted))
    return estimator.values


@every_method
@given(seed=seeds)
def test_calls_in_order_give_what_strict_order_gives(name, seed):
    steps = run(seed, 8)
    strict, free = make(name), make(name, order="any")
    for step, part in enumerate(steps):
        advantages = strict.step(part.ids, part.reward, step), free.step(part.ids, part.reward, step)
        if name not in LEARNED:
            np.testing.assert_allclose(*advantages, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(strict.values, free.values, rtol=1e-12, atol=1e-12)
    if name not in LEARNED:
        assert visits_of(strict, 8) == visits_of(free, 8)


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "binary") for name in METHODS), *((name, kind) for name in WEIGHTED for kind in ("real", "weighted"))],
)
@settings(max_examples=6)
@given(seed=seeds)
def test_any_order_split_and_lateness_give_the_visits_and_later_values_of_the_run_in_order(name, kind, seed):
    steps, weighted = run(seed, binary=kind == "binary"), kind == "weighted"
    past, now = steps[:-1], len(steps) - 1
    expected, free = in_order(name, past, weighted=weighted), make(name, order="any")
    for k, part in enumerate(mixed(past, seed)):
        record = free.observe if k % 2 else free.step
        record(part.ids, part.reward, now - 1, version=part.version, **given_to(part, name, weighted))
    found, wanted = visits_of(free, now), visits_of(expected, now)
    assert found == wanted or kind != "binary"  # sums of 0 and 1 round nowhere
    assert found.keys() == wanted.keys()
    for visit, sums in wanted.items():
        np.testing.assert_allclose(list(found[visit].values()), [sums[n] for n in found[visit]], rtol=1e-12)
    tolerance = 1e-7 if name in LEARNED else 1e-11  # shares of bandwidths are exponentials of losses
    got = last_values(free, steps, weighted)
    np.testing.assert_allclose(got, last_values(expected, steps, weighted), rtol=0, atol=tolerance)
    predicted = [estimator.predict([0, 1, 2], now + 1).value for estimator in (free, expected)]
    np.testing.assert_allclose(*predicted, rtol=0, atol=tolerance)


@every_method
@settings(max_examples=4)
@given(seed=seeds)
def test_a_run_resumed_in_the_middle_goes_on_as_if_it_had_not_stopped(name, seed, tmp_path_factory):
    steps, now = run(seed), 13
    parts = mixed(steps[:-1], seed)
    whole, resumed = (make(name, order="any", keep_deltas=True, late=30) for _ in range(2))
    file = tmp_path_factory.mktemp("state") / "state"
    for k, part in enumerate(parts):
        if k == len(parts) // 2:
            resumed.save(file)
            resumed = AsynchronousEstimator.load(file)
            assert (resumed.order, resumed.late) == ("any", 30)
        for estimator in (whole, resumed):
            estimator.step(part.ids, part.reward, now - 1, version=part.version)
        np.testing.assert_array_equal(whole.values, resumed.values)
    np.testing.assert_array_equal(last_values(whole, steps), last_values(resumed, steps))
    taken = whole.take_delta(), resumed.take_delta()
    parts = [[part.plain() for part in delta.parts.values()] for delta in taken]
    assert repr(parts[0]) == repr(parts[1]) and len(taken[0]) > 0


LEAVE_ONE_OUT = [*METHODS, "rloo", "pooled", "james_stein"]


def changed(reward, place):
    other = reward.copy()
    other[place] = 1.0 - other[place]
    return other


@pytest.mark.parametrize("name", LEAVE_ONE_OUT)
@given(seed=seeds, data=st.data())
def test_no_value_sees_its_own_reward_whichever_calls_came_before(name, seed, data):
    """Parts of the same visit came before, some of them later versions; the completion's own call records it."""
    parts = mixed(run(seed, 10), seed)
    call = data.draw(st.integers(0, len(parts) - 1))
    place = data.draw(st.integers(0, len(parts[call]) - 1))
    values = []
    for reward in (parts[call].reward, changed(parts[call].reward, place)):
        estimator = AsynchronousEstimator(name) if name not in METHODS else make(name, order="any")
        for part in parts[:call]:
            estimator.step(part.ids, part.reward, 9, version=part.version)
        estimator.step(parts[call].ids, reward, 9, version=parts[call].version)
        values.append(estimator.values[place])
    assert values[0] == pytest.approx(values[1], abs=1e-12)


@every_method
@given(seed=seeds, data=st.data())
def test_nor_where_it_had_been_recorded_before_its_advantage_was_asked_for(name, seed, data):
    steps = run(seed, 10)
    asked = steps[data.draw(st.integers(0, 9))]
    place = data.draw(st.integers(0, len(asked) - 1))
    values = []
    for reward in (asked.reward, changed(asked.reward, place)):
        estimator = make(name, order="any")
        recorded = [s if s is not asked else type(s)(s.ids, reward, s.version, s.weight) for s in steps]
        for part in mixed(recorded, seed):
            estimator.observe(part.ids, part.reward, 9, version=part.version)
        before = visits_of(estimator, 10)
        advantages = estimator.advantages(asked.ids, reward, 9, version=asked.version)
        np.testing.assert_allclose(advantages, reward - estimator.values, atol=1e-12)
        assert visits_of(estimator, 10) == before
        values.append(estimator.values[place])
    assert values[0] == pytest.approx(values[1], abs=1e-12)


def test_completions_of_one_call_are_one_group_whatever_their_versions():
    one, other = (AsynchronousEstimator("kae", bandwidth=5) for _ in range(2))
    for estimator in (one, other):
        estimator.step(["a", "a"], [1.0, 0.0], 0)
    one.step(["a"] * 4, [1.0, 0.0, 0.0, 1.0], 4, version=[2, 3, 3, 2])
    other.step(["a"] * 4, [1.0, 0.0, 0.0, 1.0], 4, version=[3, 3, 3, 3])
    np.testing.assert_array_equal(one.values, other.values)
    assert visits_of(one, 5)["a", 2]["total"] == 2.0 and visits_of(one, 5)["a", 3]["count"] == 2


def test_predictions_see_versions_before_now():
    estimator = AsynchronousEstimator("kae", bandwidth=5)
    estimator.observe(["a"] * 4, [1.0, 0.0, 1.0, 1.0], 6, version=[2, 3, 4, 6])
    weight = as_kernel("triangular").weight(np.array([2.0, 1.0]) / 5, np)
    prediction = estimator.predict(["a"], 4)
    assert prediction.value[0] == pytest.approx(weight[0] / weight.sum()) and prediction.lag[0] == 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda e: e.step(["a"], [1.0], 3, version=[4]), "version: 4 is after step 3"),
        (lambda e: e.step(["a"], [1.0], 3, version=[-1]), "version"),
        (lambda e: e.step(["a"], [1.0], 3, version=[1.5]), "version must hold steps"),
        (lambda e: e.step(["a"], [1.0], 3, version=[1, 2]), "version has 2 entries for 1"),
        (lambda e: e.observe(["a"], [np.inf], 3), "rewards must be finite"),
        (lambda e: e.step(["a"], [1.0], 3, importance=[1.0]), "importance must be given at every step or at none"),
        (lambda e: e.take_delta(), "keep_deltas=True"),
    ],
)
def test_what_is_refused_changes_nothing(call, said):
    estimator = AsynchronousEstimator("kae", bandwidth=5)
    estimator.step(["a", "b"], [1.0, 0.0], 2)
    before = estimator.state_dict()
    with pytest.raises(ValueError, match=said):
        call(estimator)
    assert estimator.state_dict() == before


def test_what_is_predicted_with_importance_alone_is_the_reweighted_reward():
    reward, ratio = np.array([1.0, 0.0, 1.0]), np.array([0.5, 2.0, 1.0])
    alone, weighed = (AdvantageEstimator("kae", bandwidth=5) for _ in range(2))
    alone.step(["a"] * 3, reward, 0, importance=ratio)
    weighed.step(["a"] * 3, reward, 0, weights=ratio)
    assert alone.predict(["a"], 1).value[0] == pytest.approx(1.5 / 3.5)
    assert weighed.predict(["a"], 1).value[0] == pytest.approx(2 / 3)
