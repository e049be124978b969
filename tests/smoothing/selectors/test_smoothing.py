"""`CausalSmoother` against plain loops."""

import math

import numpy as np
import pytest

from kaestat import Visits
from kaestat.smoothing.kernels import CallableKernel, as_kernel
from kaestat.smoothing.selectors.smoothing import ROW_BLOCK_NUMBERS, CausalSmoother, row_blocks
from tests.helpers import references

KERNELS = references.KERNELS | {
    "biweight": lambda u: 15 / 16 * max(1 - (u / 2) ** 2, 0) ** 2,
    "box": lambda u: 0.5 if u <= 2 else 0.0,
}
OF_USERS = {  # of bounded support, and no polynomials that the library knows of
    "biweight": CallableKernel(lambda u: 15 / 16 * np.clip(1 - (u / 2) ** 2, 0, None) ** 2, support=2.0),
    "box": CallableKernel(lambda u: np.full_like(u, 0.5), support=2.0),
}
BANDWIDTHS = [0.5, 1.0, 2.5, 7.0, 60.0, math.inf]


def make_series(layout, *, weighted=False, seed=0):
    """Six prompts; ``common`` times, ``irregular`` times, or irregular with ``scattered`` padding between visits."""
    rng = np.random.default_rng(seed)
    shape = (6, 12)
    if layout == "common":
        time, present = np.broadcast_to(np.cumsum(rng.integers(1, 4, 12)), shape), rng.random(shape) < 0.8
    else:
        time, present = np.cumsum(rng.integers(1, 6, shape), axis=1), np.arange(12) < rng.integers(1, 13, (6, 1))
    if layout == "scattered":
        present = rng.random(shape) < 0.5
    count = np.where(present, rng.integers(1, 5, shape), 0).astype(float)
    total = rng.binomial(count.astype(int), 0.5).astype(float)
    lag = np.where(present, 100.0 - time, 7.0)
    weight = {}
    if weighted:
        factor = np.where(rng.random(shape) < 0.2, 0.0, rng.uniform(0.5, 2, shape))  # some visits weigh nothing
        weight = {
            "weight": factor * count,
            "weight_sq": factor**2 * count,
            "weighted_total": factor * total,
            "weighted_total_sq": factor * total,
        }
    return Visits(lag=lag, count=count, total=total, total_sq=total, **weight)


def kernel_of(name):
    return OF_USERS[name] if name in OF_USERS else as_kernel(name)


def past_by_loops(series, kernel, bandwidth):
    mass, carried = np.zeros(series.lag.shape), np.zeros(series.lag.shape)
    for p, i in np.argwhere(series.mass > 0):
        for v in range(series.lag.shape[1]):
            lag = series.lag[p, v] - series.lag[p, i]
            if series.count[p, v] > 0 and lag > 0:
                mass[p, i] += KERNELS[kernel](lag / bandwidth) * series.mass[p, v]
                carried[p, i] += KERNELS[kernel](lag / bandwidth) * series.carried[p, v]
    return mass, carried


@pytest.mark.parametrize("bandwidth", BANDWIDTHS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("layout", ["common", "irregular", "scattered"])
def test_sums_over_the_past_are_those_of_a_loop(layout, weighted, kernel, bandwidth):
    series = make_series(layout, weighted=weighted)
    smoother = CausalSmoother(series)
    assert (smoother.common_time is not None) == (layout == "common")
    present = series.mass > 0
    for actual, expected in zip(
        smoother.past(kernel_of(kernel), bandwidth), past_by_loops(series, kernel, bandwidth), strict=True
    ):
        np.testing.assert_allclose(actual[present], expected[present], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("layout", ["common", "irregular", "scattered"])
def test_blocks_of_prompts_change_nothing(layout, monkeypatch):
    whole = CausalSmoother(make_series(layout)).past(as_kernel("triangular"), 9.0)
    monkeypatch.setattr("kaestat.smoothing.selectors.smoothing.BLOCK_CELLS", 1)
    for actual, expected in zip(
        CausalSmoother(make_series(layout)).past(as_kernel("triangular"), 9.0), whole, strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


def test_prompts_of_one_design_share_their_mass():
    series = make_series("common")
    full = Visits(
        lag=series.lag[:1] + np.zeros((3, 12)),
        count=np.full((3, 12), 2.0),
        total=series.total[:3],
        total_sq=series.total[:3],
    )
    full = Visits(np.broadcast_to(np.arange(12.0, 0, -1), (3, 12)), full.count, full.total, full.total_sq)
    for actual, expected in zip(
        CausalSmoother(full).past(as_kernel("triangular"), 5.0), past_by_loops(full, "triangular", 5.0), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-12)


@pytest.mark.parametrize("layout", ["common", "irregular", "scattered"])
def test_forward_prediction_falls_back_on_the_visit_before(layout):
    series = make_series(layout, weighted=True, seed=1)
    smoother = CausalSmoother(series)
    with np.errstate(all="raise"):
        prediction = smoother.forward(as_kernel("triangular"), 2.5)
    np.testing.assert_array_equal(prediction[~smoother.has_past & smoother.present], 0.0)
    mass, carried = past_by_loops(series, "triangular", 2.5)
    fell_back = 0
    for p, i in np.argwhere(smoother.has_past):
        before = [v for v in range(i) if series.mass[p, v] > 0][-1]
        last = series.carried[p, before] / series.mass[p, before]
        assert prediction[p, i] == pytest.approx(carried[p, i] / mass[p, i] if mass[p, i] > 0 else last, abs=1e-12)
        fell_back += mass[p, i] == 0
    assert fell_back > 0 or layout == "common", "some visit should have no weighted past, or the fallback is untested"


def test_visit_statistics_are_those_of_the_completions():
    rewards = [[0.0, 1.0, 1.0], [0.5]]
    sums = np.array(
        [[(9.0 - v, len(z), sum(z), sum(x * x for x in z)) for v, z in enumerate(rewards)] + [(0.0, 0, 0, 0)]]
    )
    smoother = CausalSmoother(Visits(*np.moveaxis(sums, -1, 0)))
    np.testing.assert_allclose(smoother.mean, [[2 / 3, 0.5, 0.0]])
    np.testing.assert_allclose(smoother.scatter, [[2 / 9, 0.0, 0.0]])
    np.testing.assert_allclose(smoother.variance, [[1 / 3, 0.0, 0.0]])
    assert smoother.has_past.tolist() == [[False, True, False]]
    assert smoother.before.tolist() == [[-1, 0, 1]]
    np.testing.assert_allclose(smoother.mean_before, [[0.0, 2 / 3, 0.5]])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", [(2, 0), (0, 2), (0, 0), (2, 3)])
def test_a_series_without_visits_has_no_past(shape, kernel):
    none = np.zeros(shape)
    mass, carried = CausalSmoother(Visits(none, none, none, none)).past(kernel_of(kernel), 5.0)
    assert mass.shape == carried.shape == shape
    assert not mass.any() and not carried.any()


def with_a_column_that_nobody_visits(series, column):
    names = ("lag", "count", "total", "total_sq")
    return Visits(*(np.insert(getattr(series, name), column, 7.0 * (name == "lag"), axis=1) for name in names))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("columns", [1, 5, 128])
def test_prompts_share_their_times_whatever_the_blocks_and_though_nobody_visits_a_column(columns, kernel, monkeypatch):
    monkeypatch.setattr("kaestat.smoothing.selectors.smoothing.SHARED_COLUMNS", columns)
    series = with_a_column_that_nobody_visits(make_series("common", seed=2), 4)
    smoother = CausalSmoother(series)
    common = smoother.common_time
    assert common is not None and np.flatnonzero(np.isnan(common)).tolist() == [4]
    for actual, expected in zip(smoother.past(kernel_of(kernel), 9.0), past_by_loops(series, kernel, 9.0), strict=True):
        np.testing.assert_allclose(actual[smoother.present], expected[smoother.present], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kernel", ["triangular", "exponential"])
def test_a_series_in_single_precision_is_smoothed_in_double(kernel):
    series = make_series("irregular")
    names = ("lag", "count", "total", "total_sq")
    single = Visits(*(getattr(series, name).astype(np.float32) for name in names))
    np.testing.assert_array_equal(
        CausalSmoother(single).forward(as_kernel(kernel), 4.3), CausalSmoother(series).forward(as_kernel(kernel), 4.3)
    )


@pytest.mark.parametrize(
    "shape", [(5, 2), (100_000, 2), (40_000, 1), (7, 10_000), (3, ROW_BLOCK_NUMBERS + 1), (0, 3), (3, 0)]
)
def test_blocks_of_rows_are_as_large_as_the_cache_bears_and_cover_every_row_once(shape):
    blocks = [np.arange(shape[0])[block] for block in row_blocks(shape)]
    assert np.concatenate([[], *blocks]).tolist() == list(range(shape[0]))
    for block in blocks:
        assert len(block) == 1 or len(block) * shape[1] <= ROW_BLOCK_NUMBERS
    for block in blocks[:-1]:
        assert (len(block) + 1) * shape[1] > ROW_BLOCK_NUMBERS


def test_padding_between_visits_long_ago_hides_none_of_them():
    lag = np.array([[50.0, 49.0, 0.0, 48.0], [50.25, 49.25, 0.0, 48.25]])
    count = 1.0 * (lag > 0)
    mass, _ = CausalSmoother(Visits(lag, count, count, count)).past(OF_USERS["box"], 1.25)
    np.testing.assert_array_equal(mass[:, [0, 1, 3]], [[0, 0.5, 1.0]] * 2)
