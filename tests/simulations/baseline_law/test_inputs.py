"""Worlds and the law's inputs against slow enumeration with automatic derivatives."""

import numpy as np
import pytest
from scipy.special import softmax

from simulations.baseline_law.cells import CELLS, WORLDS
from simulations.baseline_law.inputs import measured
from simulations.baseline_law.optimisers import AdamW, Muon, plain_units
from simulations.baseline_law.study import bases
from simulations.baseline_law.world import HOPELESS_VALUE, World, WorldSpec

TINY = WorldSpec(
    answers=5, right=2, habit=1.0, centre=0.0, spread=1.0, rule=0.3, loud=2.0, prompts=7, rows=3, columns=4
)


@pytest.fixture
def world():
    return World.of(TINY, [np.random.default_rng(seed) for seed in (0, 1)])


@pytest.fixture
def theta():
    return np.random.default_rng(3).normal(size=(2, 3, 4, 1))


def units_of(kind, shape):
    if kind is None:
        return plain_units(shape)
    optimiser = kind(np.full((1, 1, 1, 1), 0.1), shape)
    rng = np.random.default_rng(4)
    for _ in range(5):
        optimiser.move(rng.normal(size=shape) * np.geomspace(1, 9, shape[2])[:, None])
    return optimiser.units(slice(None))


@pytest.mark.parametrize("kind", [None, AdamW, Muon])
def test_inputs_are_those_of_an_enumeration(world, theta, kind):
    torch = pytest.importorskip("torch")
    units = units_of(kind, theta.shape)
    found = measured(world, theta, units)
    for run in range(2):

        def length(matrix, run=run):
            whole = np.zeros(theta.shape)
            whole[run, ..., 0] = matrix
            return units.of_matrix(whole)[run, 0]

        mean = np.zeros((3, 4))
        for x in range(TINY.prompts):
            parameter = torch.tensor(theta[run, ..., 0], requires_grad=True)
            features = torch.as_tensor(world.v[run, x])
            logits = torch.as_tensor(world.base[run, x]) + features @ (torch.as_tensor(world.u[run, x]) @ parameter)
            log_p = torch.log_softmax(logits, 0)
            right = world.right[run, x] > 0
            scores = [torch.autograd.grad(each, parameter, retain_graph=True)[0].numpy() for each in log_p]
            p, weight = log_p.detach().exp().numpy(), np.array([length(score) for score in scores])
            value = p[right].sum()
            gradient = sum(p[a] * scores[a] for a in np.flatnonzero(right))
            mean += gradient / TINY.prompts
            expected = {
                "value": value,
                "right": p[right] @ weight[right] / value,
                "wrong": p[~right] @ weight[~right] / (1 - value),
                "right_square": p[right] @ weight[right] ** 2 / value,
                "wrong_square": p[~right] @ weight[~right] ** 2 / (1 - value),
                "signal": length(gradient),
            }
            for name, number in expected.items():
                assert getattr(found[run], name)[x] == pytest.approx(number, rel=1e-9), name
        assert found[run].common == pytest.approx(length(mean), rel=1e-9)


def test_the_policy_is_a_softmax_of_base_and_features(world, theta):
    logits = world.base + np.einsum("spi,sijk,spaj->spa", world.u, theta, world.v)
    np.testing.assert_allclose(world.policy(theta)[..., 0], softmax(logits, axis=-1), rtol=1e-12)


def test_values_before_training_are_as_set():
    spec = WorldSpec(answers=6, right=2, habit=3.0, centre=0.4, spread=0.0, hopeless=0.2, prompts=400)
    world = World.of(spec, [np.random.default_rng(0)])
    values = world.values(np.zeros((1, 8, 8, 1)))[0, :, 0]
    expected = 1 / (1 + np.exp(-0.4))
    hopeless = np.isclose(values, HOPELESS_VALUE)
    np.testing.assert_allclose(values[~hopeless], expected, rtol=1e-9)
    assert abs(hopeless.mean() - 0.2) < 0.08


def test_the_habit_is_the_mode_and_wrong():
    world = World.of(WORLDS["many"], [np.random.default_rng(0)])
    policy = world.policy(np.zeros((1, 8, 8, 1)))[0, ..., 0]
    mode = policy.argmax(-1)
    wrong = world.right[0][np.arange(len(mode)), mode] == 0
    assert wrong.mean() > 0.95


def test_first_visits_of_the_real_world_are_as_in_the_log():
    cell = next(cell for cell in CELLS if cell.world == "real")
    values = bases(cell).values(np.zeros((6, 8, 8, 1)))[..., 0]
    assert ((1 - values) ** 8).mean() == pytest.approx(0.37, abs=0.02)
    assert (values**8).mean() == pytest.approx(0.08, abs=0.015)


@pytest.mark.parametrize(
    "given, message",
    [({"right": 6}, "right must lie"), ({"hopeless": 1.0}, "hopeless"), ({"answers": 128}, "answers must be below")],
)
def test_worlds_that_make_no_sense_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        WorldSpec(**{"answers": 6, "right": 2, "habit": 1.0, "centre": 0.0, "spread": 1.0} | given)


def test_plain_units_where_adams_count_say_something_else():
    """The planted fault: in a loud world the constant of plain units leaves more noise in Adam's units."""
    spec = WORLDS["loud"]
    world = World.of(spec, [np.random.default_rng(0)])
    theta = np.zeros((1, 8, 8, 1))
    adam = AdamW(np.full((1, 1, 1, 1), 0.1), theta.shape)
    rng = np.random.default_rng(1)
    scores = world.v[0, :, :, None, :] * world.u[0, :, None, :, None]
    policy = world.policy(theta)[0, ..., 0]
    centred = scores - np.einsum("pa,paij->pij", policy, scores)[:, None]
    for _ in range(50):  # gradients of random batches, which set Adam's units
        x = rng.integers(spec.prompts, size=64)
        a = (policy[x].cumsum(-1) < rng.random(64)[:, None]).sum(-1)
        adam.move(((world.right[0, x, a] - 0.5)[:, None, None] * centred[x, a]).mean(0)[None, ..., None])
    in_adams, in_plain = (
        measured(world, theta, units)[0] for units in (adam.units(slice(None)), plain_units(theta.shape))
    )
    assert in_plain.ratio > 1.3 * in_adams.ratio
    best = in_adams.second_moment(in_adams.constant).mean()
    assert in_adams.second_moment(in_plain.constant).mean() > 1.02 * best


def test_values_that_round_to_more_than_1_are_1(theta):
    spec = WorldSpec(answers=12, right=7, habit=0.0, centre=0.0, spread=1.0, prompts=64, rows=3, columns=4)
    world = World.of(spec, [np.random.default_rng(seed) for seed in (0, 1)])
    solved = World(world.u, world.v, world.base + 40 * world.right, world.right)
    assert (solved.policy(theta)[..., 0] * solved.right).sum(-1).max() > 1
    assert max(each.value.max() for each in measured(solved, theta, plain_units(theta.shape))) == 1
