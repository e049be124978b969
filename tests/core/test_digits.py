"""Rewards far from 0, huge and tiny ones: every method gives what it gives at ordinary ones, refuses them, or warns."""

import warnings

import numpy as np
import pytest

from kaestat import AdvantageEstimator, RewardLog
from kaestat.baselines.registry import METHODS, make_baseline
from kaestat.baselines.reward_range import RangedBaseline
from kaestat.core.arrays import Groups
from kaestat.core.digits import FARTHEST, SMALLEST, lost_digits, variance_from
from kaestat.estimator import scaling
from kaestat.history.fields import visit_sums
from kaestat.report.cli import run as command

N_STEPS = 12


def takes_rewards_alone(name):
    return not make_baseline(name).missing_input


NAMES = [name for name in METHODS if takes_rewards_alone(name)]
OF_THEIR_ZERO = {"none", "krpo", "kalman", "maxrl"}  # begin from, or divide by, what counts from 0
RANGED = {name for name in NAMES if issubclass(METHODS[name].baseline, RangedBaseline)}
BINARY = {"bnpo", *RANGED} - OF_THEIR_ZERO  # take rewards between 0 and 1
BY_HISTORY = [name for name in NAMES if make_baseline(name).horizon > 0 and name not in BINARY]


def trial(method, change):
    """Advantages of a run of binary rewards that ``change`` has been made to, shape (steps, completions)."""
    estimator, rng, found = AdvantageEstimator(method), np.random.default_rng(0), []
    for step in range(N_STEPS):
        ids, rewards = np.repeat(rng.permutation(8)[:6], 4), (rng.random(24) < 0.4) * 1.0
        weights = {"weights": rng.random(24) + 0.5} if estimator.baseline.needs_weights else {}
        found.append(estimator.step(ids, change(rewards), step, **weights))
    return np.array(found)


def told(method, change):
    """The same, and whether a warning said that digits are lost."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = trial(method, change)
    return found, any("learned from them are wrong" in str(warning.message) for warning in caught)


def test_every_method_is_either_invariant_to_shifts_or_known_not_to_be():
    differs = set()
    for name in sorted(set(NAMES) - BINARY):
        if not np.allclose(trial(name, lambda x: x + 1), trial(name, lambda x: x), atol=1e-9):
            differs.add(name)
    assert differs == OF_THEIR_ZERO


@pytest.mark.parametrize("name", sorted(set(NAMES) - BINARY - OF_THEIR_ZERO))
def test_advantages_of_rewards_far_from_zero_are_those_of_their_differences_or_a_warning_says_so(name):
    expected = trial(name, lambda x: x)
    found, warned = told(name, lambda x: x + FARTHEST / 2)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert not warned
    found, warned = told(name, lambda x: x + 1e8)
    if name in BY_HISTORY:
        assert warned
    else:
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", sorted(set(NAMES) - BINARY))
def test_advantages_of_huge_rewards_are_in_proportion_or_refused(name):
    expected = trial(name, lambda x: 1e100 * x)
    try:
        found = trial(name, lambda x: 1e300 * x)
    except ValueError as error:
        assert "rewards too large" in str(error) and (name in BY_HISTORY or name == "ebpo")
        return
    scale = np.abs(found).max() / np.abs(expected).max()
    assert np.isclose(scale, 1.0) or np.isclose(scale, 1e200)
    np.testing.assert_allclose(found / scale, expected, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("name", sorted(set(NAMES) - BINARY - {"kalman"}))  # kalman knows the variance of 0 and 1
def test_advantages_of_tiny_rewards_are_in_proportion_or_a_warning_says_so(name):
    expected = trial(name, lambda x: 1e-100 * x)
    found, warned = told(name, lambda x: 1e-300 * x)
    assert warned == (name in BY_HISTORY)
    if not warned and name != "ebpo":
        np.testing.assert_allclose(found * 1e200, expected, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("scale", ["group_std", "batch_std", "trl_group", "trl_batch"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scalings_of_huge_rewards_are_those_of_ordinary_ones(scale, dtype):
    """Before, the squares overflowed, the deviation was infinite, and every advantage was 0."""
    reward = np.array([[1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]], dtype=dtype)
    mask = np.array([[True] * 4, [True, True, True, False]])
    huge = dtype(1e300 if dtype is np.float64 else 1e30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        large = scaling.make_scaling(scale)(huge * (reward - dtype(0.5)), Groups(huge * reward, mask=mask))
    usual = scaling.make_scaling(scale)(1e6 * (reward - dtype(0.5)), Groups(1e6 * reward, mask=mask))
    np.testing.assert_allclose(large[mask], usual[mask], rtol=1e-5)
    assert np.abs(large).max() > 0.5


def test_the_limits_by_hand():
    assert lost_digits(0.0, 1.0) is None and lost_digits(-1.0, 1.0) is None
    assert lost_digits(5.0, 5.0) is None  # alike: nothing is known of the range
    assert lost_digits(FARTHEST - 1, FARTHEST) is None
    assert "Subtract one constant" in lost_digits(FARTHEST, FARTHEST + 1)
    assert "Subtract one constant" in lost_digits(-FARTHEST - 1, -FARTHEST)
    assert lost_digits(0.0, SMALLEST) is None and "Multiply" in lost_digits(0.0, SMALLEST / 2)


def test_a_past_with_a_wide_range_is_no_warning():
    """Rewards of a step that are alike but for rounding."""
    estimator, ids = AdvantageEstimator("kae"), ["a", "a", "b", "b"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator.step(ids, [1.0, 1.0 - 1e-9, 1.0, 1.0], 0)  # nothing is known yet
        estimator.step(ids, [1.0, 0.0, 0.0, 0.0], 1)
        estimator.step(ids, [1.0, 1.0 - 1e-9, 1.0, 1.0], 2)


def test_an_analysis_says_that_its_numbers_cannot_be_trusted(tmp_path, capsys):
    log = RewardLog(list("abcd") * 40, np.arange(160) // 8, 1e8 + np.arange(160) % 3 % 2)
    path = tmp_path / "run.csv"
    log.frame.assign(prompt=[log.prompts[code] for code in log.frame["prompt"]]).to_csv(path, index=False)
    assert command(["analyze", str(path), "--n-boot", "0", "--method", "kae"]) == 0
    assert "Do not trust these numbers: rewards lie more than 300000 times" in " ".join(capsys.readouterr().out.split())


def test_equal_rewards_have_no_variance_also_where_a_visit_has_thousands():
    """Sums from first to last lose a digit for every tenfold of completions: a fifth of these had a variance."""
    reward = np.repeat(np.linspace(0.05, 20, 400)[:, None], 2048, axis=1)
    sums = visit_sums(Groups(reward))
    mean, square = (sums[name] / sums["count"] for name in ("total", "total_sq"))
    assert not variance_from(square, mean).any()
    assert variance_from(square * (1 + 1e-13), mean).all()
