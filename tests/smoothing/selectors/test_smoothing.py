"""`CausalSmoother` against plain loops."""

import math

import numpy as np
import pytest

from kaestat import Visits
from kaestat.smoothing.kernels import CallableKernel, as_kernel
from kaestat.smoothing.selectors.smoothing import CausalSmoother
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


def used(series):
    """Prompts and columns with visits, and the mean of all rewards, from which the smoother takes them."""
    present = series.mass > 0
    return np.ix_(present.any(axis=1), present.any(axis=0)), series.carried.sum() / series.mass.sum()


@pytest.mark.parametrize("bandwidth", BANDWIDTHS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("layout", ["common", "irregular", "scattered"])
def test_sums_over_the_past_are_those_of_a_loop(layout, kernel, bandwidth):
    series = make_series(layout, weighted=layout != "common")
    there, center = used(series)
    mass, carried = past_by_loops(series, kernel, bandwidth)
    with np.errstate(all="raise", under="ignore"):
        actual = CausalSmoother(series).past(kernel_of(kernel), bandwidth)
    np.testing.assert_allclose(actual[0], mass[there], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(actual[1], (carried - center * mass)[there], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", ["triangular", "exponential"])
def test_a_series_in_single_precision_is_smoothed_in_double(kernel):
    series = make_series("irregular")
    names = ("lag", "count", "total", "total_sq")
    single = Visits(*(getattr(series, name).astype(np.float32) for name in names))
    np.testing.assert_array_equal(
        CausalSmoother(single).forward(as_kernel(kernel), 4.3), CausalSmoother(series).forward(as_kernel(kernel), 4.3)
    )
