"""Corollary 1 of `make_baseline("kae")` itself: its exact MSE, from the weights that it gives, is O(N^(-2/3))."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaestat import Groups, Visits, make_baseline
from kaestat.smoothing.kernels import as_kernel

MAX_VARIANCE = 0.25  # of a reward from 0 to 1
STEPS = (1600, 25600)


def cubic(u):
    """A kernel of the user's."""
    return 4 * np.maximum(1 - u, 0.0) ** 3


def every_few(rng, step, gap):
    return np.arange(step - gap, 0, -gap)[::-1]


def at_random(rng, step, gap):
    """Assumption 1, given the number of visits."""
    return np.sort(rng.choice(np.arange(1, step), size=min(step // gap, step - 1), replace=False))


def in_epochs(rng, step, gap):
    """One visit in each epoch of ``gap`` steps, at a random place; the current step ends its epoch."""
    starts = np.arange(step - gap + 1, 0, -gap)[1:]
    return np.sort(starts + rng.integers(gap, size=len(starts)))


def reused(rng, step, gap):
    """Five steps in a row, then a pause, as under the paper's schedule."""
    lag = np.arange(step - 1, 0, -1)
    return step - lag[(lag % (5 * gap)) < 5]


def logarithmic(t):
    return np.log(t)


def alternating(t):
    """Rising and falling in the logarithm of time: as steep as the other, and no line."""
    return np.abs((2 * np.log(t)) % 2 - 1) / 2


def weights(baseline, lag, group_size, step):
    """Weight on each visit's total reward, and on each other completion, for the first completion of the group."""
    size = len(lag)
    total = np.append(np.eye(size), np.zeros((1, size)), axis=0)
    reward = np.zeros((size + 1, group_size))
    reward[-1, -1] = float(group_size > 1)  # what completion 0 gives to another one
    visits = Visits(np.tile(lag, (size + 1, 1)), np.full(total.shape, float(group_size)), total, total)
    answer = baseline.values(Groups(reward), visits, step=step)[:, 0]
    return answer[:-1], (answer[-1] if group_size > 1 else 0.0)


def exact_mse(baseline, visited, path, group_size, step, reach):
    """For rewards of the largest variance that independent rewards with values of ``path`` can have."""
    lag = (step - visited[step - visited <= reach]).astype(float)
    past, own = weights(baseline, lag, group_size, step)
    others = group_size - 1
    np.testing.assert_allclose(group_size * past.sum() + others * own, 1.0, rtol=1e-9)
    bias = group_size * past @ (path(step - lag) - path(float(step)))
    return bias**2 + MAX_VARIANCE * (group_size * past @ past + others * own**2)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    kernel=st.sampled_from(["triangular", "epanechnikov", cubic]),
    drift=st.floats(0.0, 3.0),
    path=st.sampled_from([logarithmic, alternating]),
    design=st.sampled_from([every_few, at_random, in_epochs, reused]),
    gap=st.integers(1, 5),
    group_size=st.sampled_from([1, 2, 8]),
    seed=st.integers(0, 99),
)
def test_mse_stays_below_the_rate_with_the_constant_of_the_proof(kernel, drift, path, design, gap, group_size, seed):
    rng = np.random.default_rng(seed)
    for step in STEPS:
        visited = [design(rng, step, gap) for _ in range(3 if design in (at_random, in_epochs) else 1)]
        n = group_size * len(visited[0]) + group_size - 1
        h = n ** (-1 / 3)
        baseline = make_baseline("kae", kernel=kernel, bandwidth=step * h)
        mse = np.mean([exact_mse(baseline, v, lambda t: drift * path(t), group_size, step, step * h) for v in visited])
        # |bias| is at most the value's way within the bandwidth, drift log(1 / (1 - h)); a weight at most K(0) / (N h).
        peak = as_kernel(kernel).at_zero
        constant = (drift * np.log(1 / (1 - h)) / h) ** 2 + MAX_VARIANCE * peak
        assert mse <= constant * n ** (-2 / 3)


@pytest.mark.parametrize("bandwidth", [10.0, 12800.0])
def test_other_bandwidths_break_the_rate(bandwidth):
    # So the bound above can fail: too narrow a window stays noisy, too wide a one stale.
    step, visited = STEPS[-1], np.arange(1, STEPS[-1], 5)
    n = len(visited)
    baseline = make_baseline("kae", bandwidth=bandwidth)
    mse = exact_mse(baseline, visited, logarithmic, 1, step, bandwidth)
    assert mse > 2 * (1.1 + MAX_VARIANCE * 2) * n ** (-2 / 3)
