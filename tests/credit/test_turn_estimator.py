"""`TurnEstimator`: an ordinary estimator for each turn, an unbiased gradient, and a state that is whole."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import AdvantageEstimator
from kaestat.credit.turn_estimator import TurnEstimator
from tests.helpers.estimators import PARAMETERS, UNWEIGHTED

LEAVE_OWN_OUT = {
    "kae": {"bandwidth": 3.0},
    "kae_eb": {"bandwidth": 3.0},
    "kalman": {},
    "local_linear": {"bandwidth": 3.0},
    "rloo": {},
    "james_stein": {},
}


def completions(rng, *, prompts=4, size=9, most=4, successes=False):
    """Ids and rewards of one step; numbers of turns differ, and some completions have none."""
    ids = [f"p{k}" for k in rng.integers(prompts, size=size)]
    if successes:  # an outcome and nothing else
        counts = rng.integers(1, most + 1, size=size)
        return ids, [[0.0] * (count - 1) + [float(rng.random() < 0.5)] for count in counts]
    return ids, [rng.normal(size=count).tolist() for count in rng.integers(0, most + 1, size=size)]


def triangular(u):
    return 2 * max(1 - u, 0)


def discounted(rewards, gamma):
    """The return from each turn on, as it is defined."""
    return [[sum(gamma ** (j - k) * row[j] for j in range(k, len(row))) for k in range(len(row))] for row in rewards]


def slow_values(past, ids, rewards, gamma, now, bandwidth):
    """Kernel means over all completions of the prompt that came to the turn, one completion at a time."""
    returns = discounted(rewards, gamma)
    found = []
    for i, own in enumerate(returns):
        values = []
        for k in range(len(own)):
            terms = [
                (triangular((now - step) / bandwidth), earned[k])
                for step, key, earned in past
                if key == ids[i] and len(earned) > k
            ]
            peers = [j for j in range(len(ids)) if j != i and len(returns[j]) > k]
            terms += [(2.0, returns[j][k]) for j in peers if ids[j] == ids[i]]
            mass = sum(weight for weight, _ in terms)
            elsewhere = [returns[j][k] for j in peers if ids[j] != ids[i]]
            cold = np.mean(elsewhere) if elsewhere else 0.0
            values.append(sum(weight * earned for weight, earned in terms) / mass if mass else cold)
        found.append(values)
    return found, [(now, key, earned) for key, earned in zip(ids, returns, strict=True)]


@given(seed=st.integers(0, 2**32 - 1), gamma=st.sampled_from([0.0, 0.5, 1.0]))
def test_values_are_kernel_means_over_the_completions_that_came_to_the_turn(seed, gamma):
    rng, past, step = np.random.default_rng(seed), [], 0
    turns = TurnEstimator("kae", gamma=gamma, bandwidth=3.0)
    for _ in range(5):
        ids, rewards = completions(rng)
        advantages = turns.step(ids, rewards, step)
        values, new = slow_values(past, ids, rewards, gamma, step, 3.0)
        returns = discounted(rewards, gamma)
        for i in range(len(ids)):
            np.testing.assert_allclose(turns.values[i], values[i], atol=1e-12)
            np.testing.assert_allclose(advantages[i], returns[i] - turns.values[i], atol=1e-12)
        past += new
        step += int(rng.integers(1, 3))


@pytest.mark.parametrize("method", UNWEIGHTED)
def test_with_one_turn_it_is_the_ordinary_estimator_bit_for_bit(method):
    params = PARAMETERS.get(method, {})
    turns, plain = TurnEstimator(method, gamma=0.5, **params), AdvantageEstimator(method, **params)
    rng = np.random.default_rng(0)
    for step in range(6):
        ids, rewards = completions(rng, most=1, successes=True)
        mask = rng.random(len(ids)) < 0.8
        expected = plain.step(ids, np.concatenate(rewards), step, mask=mask)
        assert np.concatenate(turns.step(ids, rewards, step, mask=mask)).tolist() == expected.tolist()
        assert np.concatenate(turns.values).tolist() == plain.values.tolist()


def tree(theta):
    """Stop, or go on to a second turn and choose there: turns, their probabilities, scores, and rewards."""
    p, q = 1 / (1 + np.exp(-np.asarray(theta)))
    return [
        ([1 - p], [np.array([-p, 0.0])], [0.3]),
        ([p, 1 - q], [np.array([1 - p, 0.0]), np.array([0.0, -q])], [0.1, 0.0]),
        ([p, q], [np.array([1 - p, 0.0]), np.array([0.0, 1 - q])], [0.1, 1.0]),
    ]


def expected_gradient(method, theta, gamma=1.0):
    """Of the estimated gradient over all groups of two that can come, after a past that is always the same."""
    paths, total = tree(theta), np.zeros(2)
    for pair in itertools.product(paths, repeat=2):
        turns = TurnEstimator(method, gamma=gamma, **LEAVE_OWN_OUT.get(method, {}))
        turns.step(["a", "a", "b"], [[0.0, 1.0], [1.0], [0.0, 0.0, 1.0]], step=0)
        advantages = turns.step(["a", "a", "b", "b"], [*(path[2] for path in pair), [0.5], [0.0, 1.0]], step=1)[:2]
        chance = np.prod([np.prod(path[0]) for path in pair])
        for path, of_turns in zip(pair, advantages, strict=True):
            total += chance / 2 * sum(a * score for a, score in zip(of_turns, path[1], strict=True))
    return total


def true_gradient(theta):
    return sum(np.prod(chances) * sum(rewards) * np.sum(scores, axis=0) for chances, scores, rewards in tree(theta))


@pytest.mark.parametrize("method", LEAVE_OWN_OUT)
def test_the_gradient_is_that_of_the_expected_sum_of_rewards(method):
    theta = [0.4, -0.7]
    np.testing.assert_allclose(expected_gradient(method, theta), true_gradient(theta), atol=1e-12)


@pytest.mark.parametrize(("method", "gamma"), [("dr_grpo", 1.0), ("rloo", 0.5)])
def test_a_value_with_its_own_reward_or_a_discount_has_another_gradient(method, gamma):
    theta = [0.4, -0.7]
    assert np.abs(expected_gradient(method, theta, gamma) - true_gradient(theta)).max() > 0.01


@pytest.mark.parametrize("order", ["strict", "any"])
def test_a_run_goes_on_from_its_state_bit_for_bit(order, tmp_path):
    def run(turns, steps):
        return [
            advantages.tolist()
            for step in steps
            for advantages in turns.step(*completions(np.random.default_rng([step, 2])), step)
        ]

    def fresh():
        return TurnEstimator("kae_eb", gamma=0.9, order=order)

    whole, stopped, resumed, read = fresh(), fresh(), fresh(), fresh()
    run(whole, range(3))
    expected = run(whole, range(3, 6))
    run(stopped, range(3))
    stopped.save(tmp_path / "state")
    resumed.load_state_dict(stopped.state_dict())
    read.load(tmp_path / "state")
    assert resumed.last_step == read.last_step == 2
    assert run(resumed, range(3, 6)) == expected
    assert run(read, range(3, 6)) == expected
    assert run(fresh(), range(3, 6)) != expected, "the past shows nowhere"


def test_a_step_that_fails_at_a_late_turn_records_no_turn():
    turns = TurnEstimator("spo")  # for rewards between 0 and 1
    turns.step(["a", "a"], [[0.0, 1.0], [1.0]], 0)
    before = turns.state_dict()
    for call in (turns.step, turns.observe):
        with pytest.raises(ValueError, match="rewards"):
            call(["a", "a"], [[0.0, -1.0, 2.0], [1.0]], 1)
        assert turns.state_dict() == before
        assert len(turns.estimators) == 2
    turns.step(["a", "a"], [[0.0, 0.0, 1.0], [1.0]], 1)
    assert turns.last_step == 1 and len(turns.estimators) == 3
    turns.step(["a", "a"], [[0.0], [1.0]], 2)
    assert turns.last_step == 2  # which its later turns have not reached


def test_returns_that_overflow_are_refused():
    with pytest.raises(ValueError, match="finite"):
        TurnEstimator("rloo").step(["a"], [[1e308, 1e308]], 0)


def test_ids_of_an_array_are_those_of_a_list(tmp_path):
    rewards = [[0.0, 1.0], [1.0], [0.0]]
    states = []
    for ids in ([3, 3, 5], np.array([3, 3, 5])):
        turns = TurnEstimator("kae", bandwidth=3.0)
        turns.step(ids, rewards, 0, stream_ids=np.array(ids))
        turns.save(tmp_path / "state")
        states.append((tmp_path / "state").read_bytes())
    assert states[0] == states[1]


def test_it_travels_to_another_process():
    turns = TurnEstimator("kae", bandwidth=3.0)
    turns.step(["a", "a"], [[0.0, 1.0], [1.0]], 0)
    there = pickle.loads(pickle.dumps(turns))
    found, expected = (each.step(["a"], [[0.0, 0.0]], 1) for each in (there, turns))
    assert found[0].tolist() == expected[0].tolist()


def test_what_is_observed_is_in_the_past_as_if_it_had_been_trained_on():
    seen, stepped = TurnEstimator("kae", bandwidth=3.0), TurnEstimator("kae", bandwidth=3.0)
    ids, rewards = ["a", "a", "b"], [[0.0, 1.0], [1.0], [0.0, 0.0]]
    seen.observe(ids, rewards, 0)
    stepped.step(ids, rewards, 0)
    assert seen.state_dict() == stepped.state_dict()


def test_two_workers_know_together_what_one_would():
    """Rewards of a step on two workers, which send each other what came in; one has longer completions."""
    one = TurnEstimator("kae", bandwidth=4.0, order="any")
    ranks = [TurnEstimator("kae", bandwidth=4.0, order="any", keep_deltas=True) for _ in range(2)]
    rng = np.random.default_rng(5)
    for step in range(4):
        ids, rewards = completions(rng, size=12)
        rewards[0] = [0.0, 0.0, 0.0, 0.0, 1.0]
        one.observe(ids, rewards, step)
        for rank, worker in enumerate(ranks):
            worker.observe(ids[rank::2], rewards[rank::2], step)
        deltas = [worker.take_delta() for worker in ranks]
        for worker, delta in zip(ranks, deltas[::-1], strict=True):
            worker.merge(delta)
    asked = ["p0", "p1", "p2", "p3"]
    for worker in ranks:
        assert len(worker.estimators) == len(one.estimators) == 5
        for found, expected in zip(worker.estimators, one.estimators, strict=True):
            np.testing.assert_allclose(found.predict(asked, 4).value, expected.predict(asked, 4).value, atol=1e-12)


def test_weights_and_versions_are_those_of_each_turn():
    rng = np.random.default_rng(3)
    turns = TurnEstimator("kae", bandwidth=3.0, order="any")
    first, second = (AdvantageEstimator("kae", bandwidth=3.0, order="any") for _ in range(2))
    for step in range(2, 6):
        ids = [f"p{k}" for k in rng.integers(2, size=6)]
        rewards, weights = rng.random((2, 6, 2))
        version = rng.integers(step - 2, step + 1, size=6)
        found = np.array(turns.step(ids, rewards, step, weights=weights, version=version))
        expected = first.step(ids, rewards.sum(axis=1), step, weights=weights[:, 0], version=version)
        np.testing.assert_allclose(found[:, 0], expected, atol=1e-12)
        expected = second.step(ids, rewards[:, 1], step, weights=weights[:, 1], version=version)
        np.testing.assert_array_equal(found[:, 1], expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TurnEstimator("kae", objective="log"), r"objective: applies to prompts, not to turns"),
        (lambda: TurnEstimator("kae", prior={"a": (0.5, 1)}), r"prior: .*estimators\[0\]\.add_prior"),
        (lambda: TurnEstimator("kae", gamma=2.0), "gamma"),
        (lambda: TurnEstimator("cae"), "unknown"),
        (lambda: TurnEstimator().step(["a"], [[1.0], [0.0]], 0), "prompt_ids has 1 entries for 2 completions"),
        (lambda: TurnEstimator("rloo").step(["a"], [[1.0]], 0, weights=[[1.0, 2.0]]), "weights: completion 0 has 2"),
        (lambda: TurnEstimator().load_state_dict({"turns": {}}), "not a state of a TurnEstimator"),
        (lambda: TurnEstimator().load_state_dict({"gamma": 1.0, "turns": {}}), "it has no turns"),
        (lambda: TurnEstimator().load_state_dict(TurnEstimator(gamma=0.5).state_dict()), r"gamma=0\.5, this has 1"),
        (lambda: TurnEstimator().load_state_dict(TurnEstimator("spo").state_dict()), "'spo'"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_file_of_an_ordinary_estimator_is_refused(tmp_path):
    AdvantageEstimator("kae").save(tmp_path / "state")
    with pytest.raises(ValueError, match="holds no state of a TurnEstimator"):
        TurnEstimator("kae").load(tmp_path / "state")
