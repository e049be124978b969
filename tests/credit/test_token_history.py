"""The past of each token: the kernel sums of a loop, later steps only, and the same after a save."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat.credit.token_baseline import optimal_token_baseline
from kaestat.credit.token_history import TokenHistory
from kaestat.history.history import RewardHistory

BANDWIDTH = 3.0


def step_of(rng, *, tokens, prompts=4):
    """Completions of one step: ids in any order, some twice, contiguous masks, norms and returns of any size."""
    n = int(rng.integers(1, 6))
    mask = np.arange(tokens) < rng.integers(0, tokens + 1, size=(n, 1))
    shape = n, tokens
    return [f"p{k}" for k in rng.integers(prompts, size=n)], rng.normal(size=shape), rng.uniform(0.01, 2, shape), mask


def kernel_sums(steps, prompt, now, tokens):
    """``sum K W`` and ``sum K W G`` of a prompt over all past completions, one token at a time."""
    mass, carried = np.zeros(tokens), np.zeros(tokens)
    for step, (ids, returns, norms, mask) in steps:
        for row in range(len(ids)):
            for t in range(min(tokens, mask.shape[1])):
                if ids[row] == prompt and mask[row, t]:
                    weight = np.exp(-(now - step) / BANDWIDTH) * norms[row, : t + 1][mask[row, : t + 1]].sum()
                    mass[t] += weight
                    carried[t] += weight * returns[row, t]
    return mass, carried


@given(seed=st.integers(0, 2**32 - 1))
def test_the_past_is_the_kernel_sum_over_every_earlier_completion(seed):
    rng, history, steps, step = np.random.default_rng(seed), TokenHistory(BANDWIDTH), [], 0
    for _ in range(5):
        step += int(rng.integers(1, 4))
        rows = step_of(rng, tokens=int(rng.integers(1, 5)))
        history.record(*rows, step=step)
        steps.append((step, rows))
    now, tokens = step + int(rng.integers(1, 4)), int(rng.integers(1, 7))
    found = history.past([f"p{k}" for k in range(5)], step=now, length=tokens)
    for k in range(5):
        for sums, expected in zip(found, kernel_sums(steps, f"p{k}", now, tokens), strict=True):
            np.testing.assert_allclose(sums[k], expected, rtol=1e-10, atol=1e-12)
    assert len(history) == len({name for _, (ids, *_) in steps for name in ids})


def test_the_baseline_pools_the_group_with_the_past_by_hand():
    history = TokenHistory(1 / np.log(2))  # one step ago counts half
    history.record(["x", "x"], [[1.0, 1.0], [0.0, 0.0]], [[1.0, 1.0], [2.0, 0.0]], [[1, 1], [1, 0]], step=4)
    past = history.past(["x", "x"], step=5, length=2)
    np.testing.assert_allclose(past[0], [[1.5, 1.0]] * 2)  # (1 + 2) / 2, 2 / 2
    np.testing.assert_allclose(past[1], [[0.5, 1.0]] * 2)
    group = ([[1.0, 1.0], [0.0, 0.0]], [[1.0, 0.0], [0.5, 0.5]], np.ones((2, 2)), ["u", "u"])
    found = optimal_token_baseline(*group, without_own=True, past=past)
    np.testing.assert_allclose(found, [[0.5 / 2.0, 1.0 / 2.0], [1.5 / 2.5, 2.0 / 2.0]])
    with_own = optimal_token_baseline(*group, past=past)
    np.testing.assert_allclose(with_own, [[1.5 / 3.0, 2.0 / 3.0]] * 2)


@given(seed=st.integers(0, 2**32 - 1))
def test_without_its_own_a_completions_returns_never_matter_and_the_past_does(seed):
    rng, history = np.random.default_rng(seed), TokenHistory(BANDWIDTH)
    history.record(["p", "p"], rng.normal(size=(2, 3)), rng.uniform(0.1, 1, (2, 3)), np.ones((2, 3)), step=0)
    past, norms, mask = history.past(["p"], step=1, length=3), rng.uniform(0.1, 1, (1, 3)), np.ones((1, 3))
    one, other = (
        optimal_token_baseline(returns, norms, mask, ["u"], without_own=True, past=past)
        for returns in (np.zeros((1, 3)), np.full((1, 3), 9.0))
    )
    np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(one, past[1] / past[0])


def test_single_completions_have_less_noise_with_a_past_than_without_a_baseline():
    """Two tokens, of which the second alone decides: the first token's best baseline is that of a value."""
    rng, history = np.random.default_rng(7), TokenHistory(20.0)
    noise = np.zeros((2, 2))
    for step in range(400):
        returns = np.repeat((rng.random(8) < 0.8).astype(float)[:, None], 2, axis=1)
        norms = np.column_stack([np.full(8, 0.5), np.where(returns[:, 0] > 0, 0.1, 1.6)])
        ids, mask = [f"p{k}" for k in range(8)], np.ones((8, 2))
        past = history.past(ids, step=step, length=2)
        values = optimal_token_baseline(returns, norms, mask, ids, without_own=True, past=past)
        history.record(ids, returns, norms, mask, step=step)
        if step >= 50:
            weight = np.cumsum(norms, axis=1)
            noise += np.stack([(weight * (returns - b) ** 2).sum(axis=0) for b in (values, 0 * values)])
    # Least: E[W] p (1 - p) at the first token; E[W G^2] - E[W G]^2 / E[W] at the second.
    mass, carried = 0.8 * 0.6 + 0.2 * 2.1, 0.8 * 0.6
    least = np.array([0.5 * 0.16, carried - carried**2 / mass]) * 8 * 350
    assert (noise[0] < 0.7 * noise[1]).all()
    np.testing.assert_allclose(noise[0], least, rtol=0.12)


def test_a_saved_history_goes_on_as_if_it_had_not_stopped(tmp_path):
    rng = np.random.default_rng(3)
    whole, steps = TokenHistory(BANDWIDTH), [step_of(rng, tokens=4) for _ in range(6)]
    for step, rows in enumerate(steps[:3]):
        whole.record(*rows, step=step)
    whole.save(tmp_path / "state")
    resumed = TokenHistory(BANDWIDTH)
    resumed.load(tmp_path / "state")
    for step, rows in enumerate(steps[3:], start=3):
        whole.record(*rows, step=step)
        resumed.record(*rows, step=step)
    ids = [f"p{k}" for k in range(4)]
    for one, other in zip(whole.past(ids, step=9, length=4), resumed.past(ids, step=9, length=4), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_step_that_was_recorded_is_refused_and_nothing_is_changed():
    history, ones = TokenHistory(BANDWIDTH), np.ones((1, 2))
    history.record(["a"], ones, ones, ones, step=3)
    before = history.state_dict()
    for again in (3, 2):
        with pytest.raises(
            ValueError, match=rf"prompt 'a' has been recorded at step 3, and comes again at step {again}"
        ):
            history.record(["b", "a"], np.ones((2, 2)), np.ones((2, 2)), np.ones((2, 2)), step=again)
        with pytest.raises(ValueError, match="recorded at step 3"):
            history.past(["a"], step=again, length=2)
    with pytest.raises(ValueError, match="prompt_ids has 2 entries for 1 completions"):
        history.record(["b", "c"], ones, ones, ones, step=4)
    after = history.state_dict()
    assert after["keys"] == before["keys"] == ["a"]
    np.testing.assert_array_equal(after["sums"], before["sums"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bandwidth": 5.0}, "saved with bandwidth 5, this history has 3"),
        ({"keys": ["a", "a"]}, "do not fit together"),
        ({"sums": np.full((2, 1, 2), np.nan)}, "do not fit together"),
        ({"sums": np.ones((2, 2, 2))}, "do not fit together"),
        ({"step": np.array([-1])}, "do not fit together"),
        ({"step": None}, "do not fit together"),
        ({"keys": None}, "prompt ids must be"),
    ],
)
def test_a_state_that_was_altered_is_refused_and_nothing_is_changed(change, message):
    history, ones = TokenHistory(BANDWIDTH), np.ones((1, 2))
    history.record(["a"], ones, ones, ones, step=3)
    with pytest.raises(ValueError, match=message):
        history.load_state_dict(history.state_dict() | change)
    np.testing.assert_array_equal(history.past(["a"], step=3 + 1, length=1)[0], [[np.exp(-1 / BANDWIDTH)]])


def test_a_file_of_something_else_and_a_bad_bandwidth_are_refused(tmp_path):
    RewardHistory(3).save(tmp_path / "other")
    with pytest.raises(ValueError, match="holds no history of tokens"):
        TokenHistory(3.0).load(tmp_path / "other")
    with pytest.raises(ValueError, match="bandwidth"):
        TokenHistory(0.0)


@pytest.mark.parametrize(
    ("past", "message"),
    [
        ((np.ones((1, 2)), np.ones((2, 2))), r"two arrays of shape \(2, 2\), got \(1, 2\)"),
        ((-np.ones((2, 2)), np.ones((2, 2))), "its mass not negative"),
        ((np.ones((2, 2)), np.full((2, 2), np.inf)), "past must be finite"),
    ],
)
def test_a_past_that_does_not_fit_is_refused(past, message):
    ones = np.ones((2, 2))
    with pytest.raises(ValueError, match=message):
        optimal_token_baseline(ones, ones, ones, ["a", "a"], past=past)
