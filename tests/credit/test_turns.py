"""Turns of completions: runs of the policy's own tokens, what each earned, and what was earned from it on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat.credit.turns import rewards_of_turns, spread_over_tokens, turn_counts, turn_numbers


@st.composite
def token_rows(draw):
    """Rewards at tokens, and a mask with any gaps."""
    shape = draw(st.integers(0, 4)), draw(st.integers(0, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.normal(size=shape), rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))


def slow_numbers(row):
    found, turn, inside = [], -1, False
    for own in row:
        turn += own and not inside
        inside = own
        found.append(turn if own else -1)
    return found


@given(token_rows())
def test_a_turn_is_a_run_of_tokens_in_the_mask(rows):
    _, mask = rows
    expected = [slow_numbers(row) for row in mask]
    assert turn_numbers(mask).tolist() == expected
    assert turn_counts(mask).tolist() == [max(row, default=-1) + 1 for row in expected]


@given(token_rows())
def test_rewards_of_turns_are_sums_and_none_is_lost(rows):
    rewards, mask = rows
    for row, own, found in zip(rewards, mask, rewards_of_turns(rewards, mask), strict=True):
        numbers, expected, turn = slow_numbers(own), [0.0] * len(found), 0
        for t, reward in enumerate(row):
            turn = max(turn, numbers[t])
            if len(found):
                expected[turn] += reward
        np.testing.assert_allclose(found, expected, atol=1e-12)
        if own.any():
            assert found.sum() == pytest.approx(row.sum())


def test_what_stands_at_a_tools_answer_belongs_to_the_turn_before_it():
    mask = np.array([[False, True, False, True, False, False]])
    found = rewards_of_turns(np.array([[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]]), mask)
    assert found[0].tolist() == [7.0, 56.0]


@given(token_rows())
def test_what_belongs_to_a_turn_stands_at_each_of_its_tokens(rows):
    _, mask = rows
    of_turns = [np.arange(1.0, count + 1) for count in turn_counts(mask)]
    expected = [[number + 1.0 for number in slow_numbers(row)] for row in mask]
    assert spread_over_tokens(of_turns, mask).tolist() == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: turn_numbers(np.ones(3)), r"mask must have shape \(N, T\), got \(3,\)"),
        (lambda: rewards_of_turns(np.ones((1, 2)), np.ones((1, 3))), r"one shape \(N, T\)"),
        (lambda: spread_over_tokens([1.0], np.ones((1, 1), dtype=bool)), "entry 0 must hold one number per turn, got"),
        (lambda: spread_over_tokens([[1.0]], np.array([[True, False, True]])), "completion 0 has 1 entries, but 2"),
        (lambda: spread_over_tokens([[1.0]], np.ones((2, 1), dtype=bool)), "1 entries for 2 completions"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
