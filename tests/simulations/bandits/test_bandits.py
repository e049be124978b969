"""The bandits, value paths and the Bayes filter against finite differences, enumeration and quadrature."""

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import beta, norm

from simulations.bandits.bayes_filter import Grid, known_values
from simulations.bandits.paths import PATHS, START_MEAN, START_WITHIN, start_values, value_paths
from simulations.bandits.softmax import SoftmaxBandit, one_hot_bandit
from simulations.harness import Streams
from tests.helpers.statistical import Discrepancy, check_mean, generator


def streams(replicates: int, key: str = "ab") -> Streams:
    return Streams(int(generator().integers(2**31)), key, range(replicates))


@pytest.fixture(scope="module")
def bandit() -> SoftmaxBandit:
    rng = np.random.default_rng(0)
    return SoftmaxBandit(rng.normal(size=(3, 4, 5)), rng.uniform(size=(3, 4)))


THETA = np.array([0.4, -0.3, 0.8, 0.1, -0.9])


def differences(function, theta: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Central finite differences, the parameter's axis last."""
    moves = step * np.eye(len(theta))
    return np.stack([(function(theta + m) - function(theta - m)) / (2 * step) for m in moves], axis=-1)


def test_scores_are_the_gradients_of_log_probabilities(bandit):
    numeric = differences(lambda theta: np.log(bandit.policy(theta)), THETA)
    np.testing.assert_allclose(bandit.scores(THETA), numeric, atol=1e-8)
    assert np.abs(bandit.features - numeric).max() > 0.1  # without the centre they are none


def test_gradients_are_those_of_values_and_objective(bandit):
    np.testing.assert_allclose(bandit.prompt_gradients(THETA), differences(bandit.values, THETA), atol=1e-8)
    np.testing.assert_allclose(bandit.gradient(THETA), differences(bandit.objective, THETA), atol=1e-8)


def sample_variance(bandit: SoftmaxBandit, baselines: np.ndarray) -> np.ndarray:
    """Trace of the variance of ``S (Z - b)`` for each prompt, by enumeration of actions and 0/1 rewards."""
    policy, scores = bandit.policy(THETA), bandit.scores(THETA)
    norm2 = (scores**2).sum(axis=-1)
    squared = bandit.success * (1 - baselines[:, None]) ** 2 + (1 - bandit.success) * baselines[:, None] ** 2
    return (policy * norm2 * squared).sum(axis=1) - (bandit.prompt_gradients(THETA) ** 2).sum(axis=1)


def test_the_best_baselines_minimise_the_exact_variance_and_the_values_do_not(bandit):
    best = bandit.best_baselines(THETA)
    least = sample_variance(bandit, best)
    for shift in (-0.1, -0.01, 0.01, 0.1):
        assert (sample_variance(bandit, best + shift) > least).all()
    assert (sample_variance(bandit, bandit.values(THETA)) > least + 1e-6).all()


def test_one_hot_bandits_satisfy_assumption_6_exactly_when_norms_are_equal():
    for wrong_norm2, ratio in ((1.0, 1.0), (5.0, 5.0)):
        bandit = one_hot_bandit(6, 40, wrong_norm2=wrong_norm2, rng=np.random.default_rng(1))
        theta = np.zeros(40)
        norm2 = (bandit.scores(theta) ** 2).sum(axis=-1)
        right = bandit.success == 1
        assert ((right.sum(axis=1) >= 4) & (right.sum(axis=1) <= 36)).all()
        for x in range(6):
            assert norm2[x, ~right[x]].mean() / norm2[x, right[x]].mean() == pytest.approx(ratio, rel=0.15)  # nearly
        same = np.allclose(bandit.best_baselines(theta), bandit.values(theta), atol=1e-12)
        assert same == (wrong_norm2 == 1)


@pytest.mark.parametrize("kind", PATHS)
def test_paths_start_from_the_same_values_and_stay_probabilities(kind):
    drawn = streams(7)
    value = np.broadcast_to(value_paths(kind, drawn, 12, 5), (7, 12, 5))
    assert ((value > 0) & (value < 1)).all()
    if kind == "jump":  # a jump may come at the first step already
        moved = logit(value[:, 0]) - logit(start_values(drawn, 5))
        assert (np.isclose(moved, 0) | np.isclose(np.abs(moved), 1.3)).all()
    else:
        np.testing.assert_allclose(value[:, 0], start_values(drawn, 5), rtol=1e-9)


def moves(kind: str, scale: float = 0.2, n_steps: int = 30) -> np.ndarray:
    """Change of the logit from step to step, shape (R, T - 1, P)."""
    value = value_paths(kind, streams(200), n_steps, 4, scale=scale)
    kept = np.abs(logit(value)) < 15  # beyond that logits of probabilities are rounding
    return np.diff(np.where(kept, logit(value), np.nan), axis=1)


def known(array: np.ndarray) -> np.ndarray:
    return array[np.isfinite(array)]


def test_each_path_moves_as_it_says():
    assert np.abs(known(moves("static"))).max() == pytest.approx(0, abs=1e-9)
    assert np.nanmax(np.abs(moves("inverse_step") - 0.2 / np.arange(1, 30)[None, :, None])) < 1e-6
    assert np.nanmax(np.abs(moves("linear") - 0.04)) < 1e-6
    saturating = moves("saturating")
    assert np.nanmin(saturating) > 0 and np.nanmax(np.diff(saturating, axis=1)) < 1e-6
    assert np.nansum(saturating[0, :, 0]) == pytest.approx(2 * (1 - np.exp(-29 / 10)), abs=1e-6)
    jumps = moves("jump")
    size = np.abs(known(jumps))
    assert (np.isclose(size, 0, atol=1e-6) | np.isclose(size, 2, atol=1e-6)).all()
    assert (np.nansum(np.abs(jumps) > 1, axis=1) <= 1).all()


def test_the_random_walk_has_the_standard_deviation_it_is_given():
    steps = known(moves("random_walk"))[:20_000]
    check_mean(steps, target=0.0, detect=0.015)
    check_mean(steps**2, target=0.04, detect=0.004)
    with pytest.raises(Discrepancy):
        check_mean(steps**2, target=0.05, detect=0.004)


def test_starting_values_have_the_mean_and_the_reward_variance_of_the_real_run():
    start = start_values(streams(4_000), 4)
    check_mean(start.mean(axis=1), target=START_MEAN, detect=0.03)
    check_mean((start * (1 - start)).mean(axis=1), target=START_WITHIN, detect=0.01)
    with pytest.raises(Discrepancy):
        check_mean(start.mean(axis=1), target=0.4, detect=0.03)


def prior_sizes(mean: float, within: float) -> tuple[float, float]:
    share = within / (mean * (1 - mean))
    size = share / (1 - share)
    return mean * size, (1 - mean) * size


def filtered(reward: np.ndarray, mean: float, within: float, *step_sd: float) -> np.ndarray:
    """Values of the filter; the walk before each visit has the next of ``step_sd``, the last one from there on."""
    grid = Grid(mean, within)
    walks = [grid.walk(sd) for sd in step_sd]
    return known_values(reward, grid.prior[None], lambda t, belief: belief @ walks[min(t, len(walks)) - 1])


def test_without_a_walk_the_filter_is_the_conjugate_posterior_mean():
    rng = generator(31)
    reward = (rng.random((40, 5, 3, 4)) < rng.random((40, 1, 3, 1))).astype(float)
    values = filtered(reward, START_MEAN, START_WITHIN, 0.0)
    a, b = prior_sizes(START_MEAN, START_WITHIN)
    before = np.cumsum(reward.sum(axis=-1), axis=1) - reward.sum(axis=-1)
    successes = before[..., None] + reward.sum(axis=-1, keepdims=True) - reward
    trials = 4 * np.arange(5)[None, :, None, None] + 3
    np.testing.assert_allclose(values, (a + successes) / (a + b + trials), atol=5e-5)


def test_with_a_walk_the_filter_is_the_posterior_mean_by_quadrature():
    """Two steps of two completions: integrals over the logits of both steps, for every sequence of rewards."""
    mean, within, step_sd = 0.4, 0.15, 0.6
    a, b = prior_sizes(mean, within)
    before, step = np.linspace(-20, 20, 4001), np.linspace(-6, 6, 601)
    p, q = expit(before)[:, None], expit(before[:, None] + step_sd * step)
    density = beta.pdf(p, a, b) * p * (1 - p) * norm.pdf(step)

    def posterior_mean(first: list[int], other: int) -> float:
        weight = density * np.prod([p if z else 1 - p for z in first], axis=0) * (q if other else 1 - q)
        return float((weight * q).sum() / weight.sum())

    for first in ([0, 0], [0, 1], [1, 1]):
        for other in (0, 1):
            reward = np.array([[[first], [[other, 1]]]], dtype=float).reshape(1, 2, 1, 2)
            value = filtered(reward, mean, within, step_sd)[0, 1, 0, 1]  # of the last completion, which is left out
            assert value == pytest.approx(posterior_mean(first, other), abs=2e-4)


def test_walks_have_their_mean_and_variance_at_every_speed():
    grid = Grid(0.4, 0.15)
    logits = grid.logits - grid.logits[120]
    for deviation in (0.0, 0.03, 0.095, 0.13, 0.5):
        moves = grid.walk(deviation)
        np.testing.assert_allclose(moves.sum(axis=1), 1)
        assert moves[120] @ logits == pytest.approx(0, abs=1e-12)
        assert moves[120] @ logits**2 == pytest.approx(deviation**2, rel=1e-3)


def test_the_filter_never_sees_the_completion_itself_nor_the_future():
    reward = (generator(32).random((6, 4, 2, 3)) < 0.5).astype(float)
    changed = reward.copy()
    changed[:, 2, 0, 1] = 1 - changed[:, 2, 0, 1]
    values, others = (filtered(each, 0.4, 0.15, 0.2) for each in (reward, changed))
    np.testing.assert_array_equal(others[:, :2], values[:, :2])
    np.testing.assert_allclose(others[:, 2, 0, 1], values[:, 2, 0, 1], rtol=1e-12)
    np.testing.assert_array_equal(others[:, :, 1], values[:, :, 1])
    assert (others[:, 2, 0, 0] != values[:, 2, 0, 0]).all() and (others[:, 3, 0] != values[:, 3, 0]).all()
