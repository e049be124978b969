"""What every selector owes the baselines: the past alone, a bandwidth per leading index, invariance, any array kind."""

import math

import numpy as np
import pytest

from kaestat import RewardLog, Visits, select_bandwidth
from kaestat.smoothing.kernels import as_kernel
from kaestat.smoothing.selectors import SELECTORS, make_selector
from kaestat.smoothing.selectors.data_driven import DataDriven
from tests.helpers.selector_logs import GRID, random_log, reward_log, stretched, visits_of

DATA_DRIVEN = [name for name, kind in SELECTORS.items() if issubclass(kind, DataDriven)]
FIELDS = ("lag", "count", "total", "total_sq")
TRIANGULAR = as_kernel("triangular")
LOG = random_log(7, prompts=12, visits=12)


def resolve(selector, visits, *, step=100, prompts=1):
    return selector.resolve(visits, np.ones((prompts, 1)), step=step, kernel=TRIANGULAR)


def numbers(mixture):
    return np.array([[np.asarray(part, dtype=float).reshape(-1) for part in pair] for pair in mixture])


@pytest.mark.parametrize("name", DATA_DRIVEN)
def test_rewards_of_the_present_and_future_do_not_enter_the_bandwidth(name):
    log = reward_log(LOG)
    step, reward = log.frame["step"], log.frame["reward"]
    cut = sorted(set(step))[-8]

    def chosen_up_to_cut(rewards):
        (block,) = RewardLog(log.frame["prompt"], step, rewards).prompt_units.blocks(horizon=np.inf)
        mixture = resolve(make_selector(name), block.visits, step=block.step)
        parts = [np.broadcast_to(part, block.step.shape) for pair in mixture for part in pair]
        return np.stack(parts)[:, block.step[:, 0, 0] <= cut]

    expected = chosen_up_to_cut(reward)
    np.testing.assert_array_equal(chosen_up_to_cut(reward.where(step < cut, 1 - reward)), expected)
    assert not np.array_equal(chosen_up_to_cut(reward.where(step >= cut, reward.to_numpy()[::-1])), expected)


@pytest.mark.parametrize("name", DATA_DRIVEN)
def test_each_leading_index_gets_the_bandwidth_of_its_own_past(name):
    seeds, steps = (1, 2, 3, 4, 5, 6), np.array([40.0, 50, 60, 70, 80, 90])
    trends = (0.0, 0.05, 0.0, 0.1, 0.02, 0.0)
    logs = [random_log(seed, sizes=(4,), prompts=6, trend=trend) for seed, trend in zip(seeds, trends, strict=True)]
    parts = [visits_of(log, now=now) for log, now in zip(logs, steps, strict=True)]
    width = max(part.lag.shape[-1] for part in parts)
    stacked = [
        np.stack([np.pad(getattr(p, name_), ((0, 0), (0, width - p.lag.shape[-1]))) for p in parts]) for name_ in FIELDS
    ]
    visits = Visits(*(column.reshape(2, 3, 6, width) for column in stacked))
    selector = make_selector(name, grid=GRID)
    together = resolve(selector, visits, step=steps.reshape(2, 3, 1, 1), prompts=6)
    assert all(np.shape(part) == (2, 3, 1, 1) for pair in together for part in pair if np.ndim(part))
    single = [numbers(resolve(selector, part, prompts=6)) for part in parts]
    expected = np.concatenate(single, axis=-1)
    actual = numbers([tuple(np.broadcast_to(part, (2, 3, 1, 1)) for part in pair) for pair in together])
    np.testing.assert_array_equal(actual, expected)
    assert len(np.unique(actual)) > 2, "the parts should disagree, or nothing is tested"


@pytest.mark.parametrize("kernel", ["triangular", "exponential"])
@pytest.mark.parametrize("name", DATA_DRIVEN)
def test_bandwidth_scales_with_the_time_axis(name, kernel):
    selector, kernel = make_selector(name), as_kernel(kernel)
    plain = selector.select(visits_of(LOG), kernel=kernel, n_boot=20)
    scaled = selector.select(visits_of(stretched(LOG, 7.0)), kernel=kernel, n_boot=20)
    assert scaled.bandwidth == pytest.approx(7 * plain.bandwidth, rel=1e-9)
    assert scaled.se == pytest.approx(7 * plain.se, rel=1e-9)
    np.testing.assert_allclose(scaled.path["risk"], plain.path["risk"], rtol=1e-9)


@pytest.mark.parametrize("name", DATA_DRIVEN)
def test_tensors_keep_their_type_and_leading_axes(name):
    torch = pytest.importorskip("torch")
    leading = Visits(*(torch.as_tensor(getattr(visits_of(LOG), field))[None].to(torch.float32) for field in FIELDS))
    for pair in make_selector(name).resolve(leading, torch.ones(1, 12, 1), step=100, kernel=TRIANGULAR):
        for part in pair:
            assert part == 1.0 or (part.dtype == torch.float32 and part.shape == (1, 1, 1))


@pytest.mark.parametrize(("grid", "expected"), [(None, 10.0), ((20.0, 30.0), 20.0), ((2.0, 4.0), 4.0)])
@pytest.mark.parametrize("past", [[[]], [[(3.0, [0.0, 1.0])], [(4.0, [1.0])]]])
@pytest.mark.parametrize("name", DATA_DRIVEN)
def test_without_two_visits_of_a_prompt_the_bandwidth_is_ten_steps(name, past, grid, expected):
    assert resolve(make_selector(name, grid=grid), visits_of(past, now=5.0)) == [(expected, 1.0)]


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ([], "empty"),
        ([1.0, 0.0], r"positive and at most 1e\+50, got 0"),
        ([1.0, np.nan], r"positive and at most 1e\+50, got nan"),
        ([1.0, 1e51], r"positive and at most 1e\+50, got 1e\+51"),
        ([2.0, 1.0], "increasing"),
        ([2.0, 2.0], "increasing"),
    ],
)
def test_bad_grids_are_refused(grid, message):
    with pytest.raises(ValueError, match=f"grid.*{message}"):
        make_selector("loo_cv", grid=grid)


@pytest.mark.parametrize("name", DATA_DRIVEN)
@pytest.mark.parametrize("kernel", ["triangular", "exponential"])
@pytest.mark.parametrize("grid", [None, [1e-69], [1e-70, 1e50]])
def test_errors_of_bandwidths_are_finite_for_the_largest_rewards_and_grids(name, kernel, grid):
    rewards = [1e70, 0.0, -1e70, 1.0, 1e70, 0.0, 0.5, 1e70, 1.0, -1e70, 0.0, 0.0]
    prompts, steps = ["a", "a", "b", "b", "c", "c"] * 2, [0, 0, 0, 0, 1, 1, 3, 3, 5, 5, 2**31 - 2, 2**31 - 2]
    selection = select_bandwidth(RewardLog(prompts, steps, rewards), name, kernel, grid, n_boot=20)
    assert math.isfinite(selection.se) and selection.bandwidth > 0
    assert np.isfinite(selection.path.iloc[:, 2]).all()
