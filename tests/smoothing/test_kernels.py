"""One-sided kernels: every constant by quadrature, identities, bad input."""

import math
import re

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from kaestat.smoothing.kernels import KERNELS, CallableKernel, Exponential, as_kernel

ALL = [*KERNELS.values(), Exponential(rho=0.7), CallableKernel(lambda u: 3 * (1 - u) ** 2, support=1.0)]
IDS = [f"{kernel.name}{index}" for index, kernel in enumerate(ALL)]
each_kernel = pytest.mark.parametrize("kernel", ALL, ids=IDS)


def integrate(function, kernel) -> float:
    end = kernel.support if math.isfinite(kernel.support) else 150.0
    return quad(function, 0, end, limit=400, epsabs=1e-13, epsrel=1e-13)[0]


def at(kernel, u: float) -> float:
    return float(kernel(np.array([u]))[0])


@each_kernel
def test_constants_agree_with_quadrature(kernel):
    assert integrate(lambda u: at(kernel, u), kernel) == pytest.approx(1, rel=1e-9)
    assert kernel.mu1 == pytest.approx(integrate(lambda u: u * at(kernel, u), kernel), rel=1e-9)
    assert kernel.roughness == pytest.approx(integrate(lambda u: at(kernel, u) ** 2, kernel), rel=1e-9)


@each_kernel
def test_the_optimal_constants_minimise_squared_bias_plus_variance(kernel):
    def mse(h: float) -> float:  # L = s2 / n = 1
        return (h * kernel.mu1) ** 2 + kernel.roughness / h

    best = minimize_scalar(mse, bounds=(1e-2, 10), method="bounded", options={"xatol": 1e-10})
    assert best.x == pytest.approx(kernel.lipschitz_bandwidth_constant, rel=1e-5)
    assert best.fun == pytest.approx(kernel.worst_case_mse_constant, rel=1e-10)
    h = kernel.lipschitz_bandwidth_constant
    assert (h * kernel.mu1) ** 2 == pytest.approx(kernel.roughness / h / 2, rel=1e-12)


@pytest.mark.parametrize("kernel", ALL[:-1], ids=IDS[:-1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_torch_agrees_with_numpy_and_keeps_its_type(kernel, dtype):
    u = np.array([-0.5, 0.0, 0.2, 0.999, 1.0, 1.5, 7.0], dtype=str(dtype).split(".")[1])
    weight = kernel(torch.from_numpy(u))
    assert weight.dtype == dtype
    np.testing.assert_allclose(weight.numpy(), kernel(u), rtol=1e-6 if dtype == torch.float32 else 1e-14)


@each_kernel
def test_the_support_is_the_largest_lag_with_positive_weight(kernel):
    # A support named too large keeps visits that never count; one too small drops some that do.
    if math.isfinite(kernel.support):
        assert at(kernel, kernel.support * (1 - 1e-9)) > 0
        assert at(kernel, kernel.support * (1 + 1e-9)) == 0
    else:
        assert all(at(kernel, u) > 0 for u in (5.0, 20.0))


@pytest.mark.parametrize("wrong", [True, "1", 0.0, -0.2, math.nan])
def test_what_is_no_support_and_no_decay_is_refused(wrong):
    with pytest.raises(ValueError, match="support must be positive"):
        CallableKernel(np.ones_like, support=wrong)
    for rho in (wrong, 1.0):
        with pytest.raises(ValueError, match="rho must lie in"):
            Exponential(rho=rho)


def test_weights_of_single_precision_can_be_squared_and_inverted():
    """Where all of a prompt's weights were smaller, `kae_eb` gave NaN."""
    weight = as_kernel("exponential")(torch.arange(0.0, 120.0))
    felt = weight[weight > 0]
    assert 30 < len(felt) < 40 and float((felt**2).min()) > 0 and float((felt**-2).max()) < math.inf


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -0.5])
def test_a_wrong_weight_between_the_points_of_the_quadrature_is_no_weight_of_0(wrong):
    kernel = CallableKernel(lambda u: np.where(u == 0.3, wrong, np.where(u <= 2, 0.5, math.nan)), support=2.0)
    assert kernel(np.array([0.2, 2.5])).tolist() == [0.5, 0.0]
    with pytest.raises(ValueError, match=re.escape(f"must be finite and non-negative, got K(0.3) = {wrong}")):
        kernel(np.array([0.2, 0.3]))


@pytest.mark.parametrize(
    ("kernel", "error", "message"),
    [
        ("gaussian", ValueError, "unknown name 'gaussian'; choose one of triangular"),
        (3, TypeError, "got int"),
        (lambda u: np.exp(-2 * u), ValueError, "integrates to 0.5"),
        (lambda u: 2 * u * (u < 1), ValueError, r"K\(0\) must be positive"),
        (lambda u: 2 - u, ValueError, "non-negative"),
        (lambda u: u * math.nan, ValueError, "finite"),
    ],
)
def test_what_is_no_kernel_is_refused_with_the_reason(kernel, error, message):
    with pytest.raises(error, match=message):
        as_kernel(kernel)
