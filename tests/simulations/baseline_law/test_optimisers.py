"""Optimisers against torch's, and their units against explicit matrices and Monte Carlo."""

import numpy as np
import pytest

from simulations.baseline_law.optimisers import (
    SIDES_EXPONENT,
    AdamW,
    Diagonal,
    Muon,
    Sgd,
    TwoSided,
    orthogonalised,
)

RUNS, ROWS, COLUMNS, ARMS, STEPS = 2, 3, 4, 2, 6
SHAPE = (RUNS, ROWS, COLUMNS, ARMS)
RATES = np.array([[0.1, 0.3], [0.05, 0.2]])


@pytest.fixture
def gradients():
    return np.random.default_rng(0).normal(size=(STEPS, *SHAPE))


def torch_path(name, gradients, run, arm, monkeypatch):
    """Parameters after each step of torch's optimiser, which descends."""
    torch = pytest.importorskip("torch")
    rate = float(RATES[run, arm])
    theta = torch.zeros(gradients.shape[2:4], dtype=torch.float64, requires_grad=True)
    if name == "sgd":
        optimiser = torch.optim.SGD([theta], lr=rate)
    elif name == "adamw":
        optimiser = torch.optim.AdamW([theta], lr=rate, weight_decay=0.0)
    else:
        if not hasattr(torch.optim, "Muon"):
            pytest.skip("this torch has no Muon")
        # torch iterates in bfloat16, of three digits; here its own formula runs in double precision.
        monkeypatch.setattr(torch.Tensor, "bfloat16", lambda self: self.clone())
        optimiser = torch.optim.Muon([theta], lr=rate, weight_decay=0.0)
    path = []
    for gradient in gradients[:, run, ..., arm]:
        theta.grad = -torch.as_tensor(gradient)
        optimiser.step()
        path.append(theta.detach().numpy().copy())
    return np.stack(path)


@pytest.mark.parametrize("name, kind", [("sgd", Sgd), ("adamw", AdamW), ("muon", Muon)])
@pytest.mark.parametrize("turned", [False, True])  # Muon treats tall matrices otherwise than wide ones
def test_steps_are_torchs(name, kind, turned, gradients, monkeypatch):
    gradients = np.swapaxes(gradients, 2, 3) if turned else gradients
    optimiser = kind(RATES[:, None, None, :], gradients.shape[1:])
    theta, path = np.zeros(gradients.shape[1:]), []
    for gradient in gradients:
        theta = theta + optimiser.move(gradient)
        path.append(theta)
    for run in range(RUNS):
        for arm in range(ARMS):
            expected = torch_path(name, gradients, run, arm, monkeypatch)
            np.testing.assert_allclose(np.stack(path)[:, run, ..., arm], expected, rtol=1e-6, atol=1e-9)


def explicit(units, matrix, run, arm):
    """``||L(matrix)||^2`` of one matrix, written out."""
    if isinstance(units, Diagonal):
        return float((units.scale[run, ..., arm] * matrix**2).sum())
    return float(((units.left[run, ..., arm] @ matrix @ units.right[run, ..., arm]) ** 2).sum())


@pytest.mark.parametrize("kind", [Sgd, AdamW, Muon])
def test_units_measure_scores_as_matrices(kind, gradients):
    optimiser = kind(RATES[:, None, None, :], SHAPE)
    for gradient in gradients:
        optimiser.move(gradient)
    units = optimiser.units(slice(None))
    rng = np.random.default_rng(1)
    u, d = rng.normal(size=(RUNS, 5, ROWS)), rng.normal(size=(RUNS, 5, 2, COLUMNS, ARMS))
    found, g = units.of_scores(u, d), rng.normal(size=SHAPE)
    whole = units.of_matrix(g)
    for run in range(RUNS):
        for arm in range(ARMS):
            assert whole[run, arm] == pytest.approx(explicit(units, g[run, ..., arm], run, arm))
            for prompt in range(5):
                for answer in range(2):
                    matrix = np.outer(u[run, prompt], d[run, prompt, answer, :, arm])
                    expected = explicit(units, matrix, run, arm)
                    assert found[run, prompt, answer, arm] == pytest.approx(expected)


def test_units_of_some_arms_are_theirs(gradients):
    for kind in (AdamW, Muon):
        optimiser = kind(RATES[:, None, None, :], SHAPE)
        optimiser.move(gradients[0])
        matrix = gradients[1]
        one = optimiser.units(slice(1, 2)).of_matrix(matrix[..., 1:])
        np.testing.assert_allclose(one[:, 0], optimiser.units(slice(None)).of_matrix(matrix)[:, 1])


def test_adams_units_are_the_inverse_of_its_second_moment(gradients):
    optimiser = AdamW(RATES[:, None, None, :], SHAPE)
    for gradient in gradients:
        optimiser.move(gradient)
    decay = 0.999 ** np.arange(STEPS)[::-1]
    second = np.tensordot(decay, gradients**2, 1) / decay.sum()
    scale = 1 / second
    units = optimiser.units(slice(None))
    np.testing.assert_allclose(units.scale, scale / scale.mean(axis=(1, 2), keepdims=True), rtol=1e-6)


def test_before_the_first_step_units_are_plain():
    for kind in (Sgd, AdamW, Muon):
        units = kind(RATES[:, None, None, :], SHAPE).units(slice(None))
        assert isinstance(units, Diagonal) and (units.scale == 1).all()


def response_exponents(function, rows, columns, draws=6000):
    """a and b of ``E[dO_ij / dM_ij] ~ p_i^-a q_j^-b`` under noise of variances ``p_i q_j``, by Stein's identity."""
    p, q = np.geomspace(1, 16, rows), np.geomspace(1, 16, columns)
    variance = p[:, None] * q
    noise = np.random.default_rng(0).normal(size=(draws, rows, columns)) * np.sqrt(variance)
    response = (function(noise) * noise).mean(axis=0) / variance
    design = np.column_stack([np.ones(variance.size), np.repeat(np.log(p), columns), np.tile(np.log(q), rows)])
    return -np.linalg.lstsq(design, np.log(response).ravel(), rcond=None)[0][1:]


def test_muons_units_are_its_response_to_a_signal_under_noise():
    found = response_exponents(orthogonalised, 8, 8)
    np.testing.assert_allclose(found, SIDES_EXPONENT, atol=0.05)  # .37; neither Shampoo's .25 nor a whole .5


def test_a_wide_matrix_is_preconditioned_from_the_left():
    """The docstring's limit, for the polar factor itself."""

    def polar(matrix):
        left, _, right = np.linalg.svd(matrix, full_matrices=False)
        return left @ right

    found = response_exponents(polar, 4, 128, draws=2000)
    np.testing.assert_allclose(found, [0.5, 0.0], atol=0.05)


def test_muons_units_of_known_sides():
    """Gradients whose rows have variances p: the left side is P^-a up to scale, the right one the identity."""
    p = np.array([1.0, 4.0, 16.0, 64.0])
    rng = np.random.default_rng(2)
    optimiser = Muon(np.full((1, 1, 1, 1), 0.1), (1, 4, 4, 1))
    for _ in range(4000):
        optimiser.move(rng.normal(size=(1, 4, 4, 1)) * np.sqrt(p)[None, :, None, None])
    units = optimiser.units(slice(None))
    assert isinstance(units, TwoSided)
    left, right = (np.diag(side[0, ..., 0]) for side in (units.left, units.right))
    slope = np.polyfit(np.log(p), np.log(left), 1)[0]
    assert slope == pytest.approx(-SIDES_EXPONENT, abs=0.06)  # momentum leaves few independent matrices
    assert right.max() / right.min() < 1.4
