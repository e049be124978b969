"""The optimal token baseline: verl's numbers, a loop's numbers, and nothing of a completion's own reward."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat.credit.token_baseline import optimal_token_baseline


def verls(returns, norms, mask, index):
    """``compute_optimal_token_baseline_advantage`` of verl 0.9.1 (verl/trainer/ppo/core_algos.py; the same at 1dda039),
    as it goes: the epsilon in the divisor, lone completions at 0, the longest one's tail at 0."""
    baselines, members = np.zeros_like(returns), defaultdict(list)
    weights = np.cumsum(norms * mask, axis=1)
    for row, name in enumerate(index):
        members[name].append(row)
    for rows in members.values():
        if len(rows) == 1:
            continue
        for t in range(returns.shape[1]):
            carried = sum(returns[row, t] * weights[row, t] * mask[row, t] for row in rows)
            mass = sum(weights[row, t] * mask[row, t] for row in rows) + 1e-8
            for row in rows:
                baselines[row, t] = carried / mass
        lengths = [int(mask[row].sum()) for row in rows]
        longest, second = sorted(lengths)[-1], sorted(lengths)[-2]
        if lengths.count(longest) == 1:
            baselines[rows[lengths.index(longest)], second:] = 0.0
    return baselines * mask


@st.composite
def batches(draw):
    """Ragged groups in any order: returns that differ from token to token, norms of any size, contiguous masks."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    index = rng.permutation(np.repeat([f"g{k}" for k in range(len(sizes))], sizes)).tolist()
    shape = len(index), draw(st.integers(1, 7))
    mask = np.arange(shape[1]) < rng.integers(0, shape[1] + 1, size=(shape[0], 1))
    return rng.choice([0.0, 1.0, 0.25, -1.0], shape), rng.uniform(0.01, 2.0, shape), mask, index


@given(batch=batches())
def test_baselines_are_verls(batch):
    np.testing.assert_allclose(optimal_token_baseline(*batch), verls(*batch), rtol=1e-5, atol=1e-6)


@given(batch=batches(), without_own=st.booleans())
def test_baselines_are_those_of_a_loop_over_single_tokens(batch, without_own):
    returns, norms, mask, index = batch
    mask = mask & (np.random.default_rng(0).random(mask.shape) < 0.7)  # a tool's tokens are out of the loss
    found = optimal_token_baseline(returns, norms, mask, index, without_own=without_own)
    for row in range(len(index)):
        for t in range(mask.shape[1]):
            at = [k for k in range(len(index)) if index[k] == index[row] and mask[k, t]]
            weight = {k: sum(norms[k, j] for j in range(t + 1) if mask[k, j]) for k in at}
            used = [k for k in at if not (without_own and k == row)]
            expected = 0.0
            if mask[row, t] and len(at) > 1:
                expected = sum(weight[k] * returns[k, t] for k in used) / sum(weight[k] for k in used)
            assert found[row, t] == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(batch=batches(), row=st.integers(0, 100))
def test_without_its_own_a_completions_returns_never_matter_to_its_baseline(batch, row):
    returns, norms, mask, index = batch
    row %= len(index)
    changed = returns.copy()
    changed[row] += 5.0
    before, after = (optimal_token_baseline(r, norms, mask, index, without_own=True)[row] for r in (returns, changed))
    np.testing.assert_allclose(after, before, atol=1e-11)
    with_own = [optimal_token_baseline(r, norms, mask, index)[row] for r in (returns, changed)]
    alone = sum(name == index[row] for name in index) == 1
    if not alone and mask[row].any() and with_own[0].any():
        assert (with_own[1] != with_own[0]).any()


def test_equal_norms_and_outcome_rewards_give_the_group_mean_at_every_token():
    returns, mask = np.repeat([[1.0], [0.0], [1.0], [1.0]], 3, axis=1), np.ones((4, 3), dtype=bool)
    found = optimal_token_baseline(returns, np.full((4, 3), 0.3), mask, ["a", "a", "b", "b"])
    np.testing.assert_allclose(found, np.repeat([[0.5], [0.5], [1.0], [1.0]], 3, axis=1))


def test_for_a_policy_of_two_answers_it_leaves_no_variance():
    """One token, right with probability p: norms 2 (1 - p)^2 of the right and 2 p^2 of the wrong answer; b = 1 - p."""
    p, n = 0.75, 400
    right = np.arange(n) < p * n
    norms = np.where(right, 2 * (1 - p) ** 2, 2 * p**2)[:, None]
    found = optimal_token_baseline(right[:, None].astype(float), norms, np.ones((n, 1), dtype=bool), [0] * n)
    np.testing.assert_allclose(found, 1 - p, rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norms": np.ones((2, 2))}, r"one shape \(N, T\), got \(2, 3\), \(2, 2\)"),
        ({"norms": np.full((2, 3), -1e-9)}, "norms must not be negative"),
        ({"returns": np.full((2, 3), np.nan)}, "finite"),
        ({"groups": ["a"]}, "groups has 1 entries for 2 completions"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, message):
    arrays = {"returns": np.ones((2, 3)), "norms": np.ones((2, 3)), "mask": np.ones((2, 3)), "groups": ["a", "a"]}
    with pytest.raises(ValueError, match=message):
        optimal_token_baseline(**arrays | change)


def test_a_batch_without_rows_or_tokens_has_no_baselines():
    for shape in ((0, 3), (2, 0)):
        empty = np.zeros(shape)
        assert optimal_token_baseline(empty, empty, empty, ["a"] * shape[0]).shape == shape
