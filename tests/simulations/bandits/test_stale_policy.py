"""Late completions of a moving policy, against loops over answers and completions."""

from __future__ import annotations

import numpy as np
import pytest

from simulations.bandits.stale_policy import ARRIVALS, N_ANSWERS, RIGHT, Sampled, delays, longest, policy_path
from tests.helpers.statistical import check_mean, generator

SEED = int(generator().integers(2**31))
SHAPE = (6, 3, 4)


def sampled(arrival="singly", staleness=2) -> Sampled:
    rng = np.random.default_rng(SEED)
    policy = policy_path(rng, SHAPE[0], SHAPE[1], 0.5)
    return Sampled.of(policy, rng.random(SHAPE), delays(rng, arrival, staleness, SHAPE))


def test_a_path_begins_alike_however_long_it_is():
    short, long = (policy_path(np.random.default_rng(SEED), steps, 3, 0.3) for steps in (4, 9))
    np.testing.assert_array_equal(short, long[:4])
    np.testing.assert_allclose(long.sum(axis=-1), 1.0)


def test_values_move_as_fast_as_they_are_said_to():
    values = Sampled(policy_path(np.random.default_rng(SEED), 2, 4000, 0.1), np.zeros(0), np.zeros(0)).values
    moved = np.diff(np.log(values / (1 - values)), axis=0)[0]
    check_mean(moved, target=0.02, detect=0.015)
    # Sixteen answers on either side move on their own, by .1 each: their means by .1 / 4 at least.
    assert 0.1**2 < moved.var() < 0.125**2


@pytest.mark.parametrize("arrival", ARRIVALS)
def test_delays_have_their_mean_and_stay_within_the_longest(arrival):
    late = delays(np.random.default_rng(SEED), arrival, 8, (50, 200, 4))
    assert 0 <= late.min() and late.max() <= longest(arrival, 8)
    if arrival == "singly":
        check_mean(late[:, :, 0].ravel().astype(float), target=7.6, detect=0.6)  # cut off at four mean times
    elif arrival == "spread":
        check_mean(late[:, :, 0].ravel().astype(float), target=8.0, detect=0.5)
    if arrival != "singly":
        assert (late == late[..., :1]).all()


def test_a_group_waits_for_its_last_completion():
    alone, group = (delays(np.random.default_rng(SEED), arrival, 4, (9, 7, 5)) for arrival in ("singly", "waiting"))
    np.testing.assert_array_equal(group, np.broadcast_to(alone.max(axis=2, keepdims=True), alone.shape))


def test_answers_come_with_their_probabilities():
    policy = policy_path(np.random.default_rng(SEED), 1, 1, 0.1)
    drawn = Sampled.of(policy, np.random.default_rng(SEED).random((1, 1, 20_000)), np.zeros((1, 1, 20_000), dtype=int))
    for answer in range(0, N_ANSWERS, 7):
        check_mean((drawn.answer == answer).ravel().astype(float), target=policy[0, 0, answer], detect=0.02)


def test_values_importance_and_gradient_errors_are_those_of_loops_over_completions():
    drawn = sampled()
    terms, scored = np.random.default_rng(1).normal(size=SHAPE), slice(2, 6)
    errors, biases, norms = [], [], []
    for step in range(2, 6):
        for prompt in range(SHAPE[1]):
            estimate, target = np.zeros((2, N_ANSWERS))
            then = drawn.policy[step, prompt]
            for place in range(SHAPE[2]):
                answer, at = drawn.answer[step, prompt, place], min(drawn.used[step, prompt, place], SHAPE[0] - 1)
                now = drawn.policy[at, prompt]
                assert drawn.value_then[step, prompt, place] == pytest.approx(then[RIGHT].sum())
                assert drawn.value_now[step, prompt, place] == pytest.approx(now[RIGHT].sum())
                assert drawn.importance[step, prompt, place] == pytest.approx(now[answer] / then[answer])
                score = np.eye(N_ANSWERS)[answer] - now
                estimate += terms[step, prompt, place] * score / SHAPE[2]
                gradient = sum(now[y] * RIGHT[y] * (np.eye(N_ANSWERS)[y] - now) for y in range(N_ANSWERS))
                target += gradient / SHAPE[2]
            scores = np.eye(N_ANSWERS) - now  # any policy does: the terms have mean 0
            expected = sum(then[y] * (RIGHT[y] - then[RIGHT].sum()) * scores[y] for y in range(N_ANSWERS))
            errors.append(((estimate - target) ** 2).sum())
            biases.append(((expected - target) ** 2).sum())
            norms.append((target**2).sum())
    assert drawn.gradient_error(terms, scored) == pytest.approx(np.mean(errors))
    assert drawn.bias(scored) == pytest.approx((np.mean(biases), np.mean(norms)))


def test_without_lateness_there_is_no_bias_and_every_ratio_is_one():
    drawn = sampled("together", 0)
    assert (drawn.importance == 1).all() and (drawn.value_now == drawn.value_then).all()
    assert drawn.bias(slice(None))[0] == pytest.approx(0.0, abs=1e-30)
