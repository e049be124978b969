"""The law of the baseline against sums over every group of a small bandit, and in cases done by hand."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat.theory import DesignNoise, PromptMoments, predict_completions, predict_noise

RIGHT = np.array([[1, 0, 0, 1], [0, 1, 0, 0], [1, 1, 0, 1]], float)


class Bandit:
    """Three prompts with four answers each, and scores in two parameters."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        features = rng.normal(size=(3, 4, 2))
        logits = rng.normal(size=(3, 4)) + features @ rng.normal(size=2)
        self.policy = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        self.score = features - (self.policy[:, :, None] * features).sum(1, keepdims=True)
        self.value = (self.policy * RIGHT).sum(1)
        self.gradient = (self.policy[:, :, None] * RIGHT[:, :, None] * self.score).sum(1)

    def moments(self):
        weight = np.square(self.score).sum(-1)

        def given(kind, power):
            return (self.policy * kind * weight**power).sum(1) / (self.policy * kind).sum(1)

        parts = (given(kind, power) for power in (1, 2) for kind in (RIGHT, 1 - RIGHT))
        signal, common = np.square(self.gradient).sum(1), float(np.square(self.gradient.mean(0)).sum())
        return PromptMoments(self.value, *parts, signal, common)

    def enumerated(self, size, advantages):
        """``G E ||ghat_x||^2`` over prompts, and each prompt's mean update, by every group there can be."""
        square, mean = 0.0, np.zeros((3, 2))
        for prompt, *answers in product(range(3), *[range(4)] * size):
            chance = self.policy[prompt, answers].prod()
            reward = RIGHT[prompt, answers]
            update = (advantages(reward, prompt)[:, None] * self.score[prompt, answers]).mean(0)
            square += chance * np.square(update).sum() / 3
            mean[prompt] += chance * update
        return size * square, mean


def predicted(moments, **changes):
    settings = {"completions": 64, "history": 10.0, "group_sizes": (2, 4)} | changes
    return {each.design: each for each in predict_noise(moments, **settings)}


@pytest.mark.parametrize("seed", [0, 1])
def test_baselines_that_know_nothing_of_the_step_leave_what_enumeration_says(seed):
    bandit = Bandit(seed)
    moments = bandit.moments()
    table = predicted(moments)
    constant = {"none": 0.0, "none_signed": 0.5, "weighted_constant": moments.constant}
    baselines = {name: np.full(3, b) for name, b in constant.items()} | {"value": bandit.value, "best": moments.best}
    for name, baseline in baselines.items():
        square, mean = bandit.enumerated(1, lambda reward, prompt, b=baseline: reward - b[prompt])
        assert table[name].noise == pytest.approx(square - np.square(mean.mean(0)).sum(), rel=1e-12)
        np.testing.assert_allclose(mean, bandit.gradient, atol=1e-14)


@pytest.mark.parametrize("size", [2, 4])
def test_leave_one_out_groups_leave_what_enumeration_says(size):
    bandit = Bandit()
    square, mean = bandit.enumerated(size, lambda reward, _: reward - (reward.sum() - reward) / (size - 1))
    found = predicted(bandit.moments())[f"rloo_{size}"]
    assert found.noise == pytest.approx(square - size * np.square(mean.mean(0)).sum(), rel=1e-12)


@pytest.mark.parametrize("size", [2, 4])
def test_grpo_leaves_what_enumeration_says(size):
    def standardised(reward, _):
        deviation = reward.std(ddof=1)
        return (reward - reward.mean()) / deviation if deviation else 0 * reward

    bandit = Bandit()
    square, mean = bandit.enumerated(size, standardised)
    found = predicted(bandit.moments())[f"grpo_{size}"]
    assert found.noise + size * found.signal == pytest.approx(square, rel=1e-12)
    ahead = bandit.gradient.mean(0) / np.linalg.norm(bandit.gradient.mean(0))
    assert found.signal == pytest.approx((mean.mean(0) @ ahead) ** 2, rel=0.02)  # prompts' directions are assumed


def test_shrinkage_is_between_the_constant_and_the_prompts_own_and_better_than_both():
    moments = Bandit().moments()
    alone = moments.square_moment(moments.best) / (10 * moments.weight**2)
    own = moments.second_moment(moments.best, alone).mean() - moments.common
    found = predicted(moments)
    assert found["weighted_history"].noise < min(own, found["weighted_constant"].noise)
    assert predicted(moments, history=1e9)["weighted_history"].noise == pytest.approx(found["best"].noise)
    few = predicted(moments, history=1e-9)
    assert few["weighted_history"].noise == pytest.approx(found["weighted_constant"].noise)


def test_limits():
    moments = Bandit().moments()
    large = predicted(moments, completions=10**9, history=np.inf, group_sizes=(2,))
    assert large["history"].noise == pytest.approx(large["value"].noise)
    assert large["weighted_batch_mean"].noise == pytest.approx(large["weighted_constant"].noise)
    assert large["batch_mean"].noise > large["weighted_batch_mean"].noise
    alike = predicted(uniform_weights([0.5], 3.0), history=np.inf)  # neither spread nor error
    assert alike["weighted_history"].noise == alike["weighted_constant"].noise


@given(p=st.fractions(Fraction(1, 100), Fraction(99, 100)), rho=st.fractions(Fraction(1, 100), 200))
def test_none_beats_the_value_from_the_threshold_on_and_not_before(p, rho):
    of_none, of_value = (p * (1 - b) ** 2 + (1 - p) * rho * b**2 for b in (Fraction(0), p))
    threshold = 1 + 1 / (1 - p)
    assert (of_none < of_value) == (rho > threshold)
    moments = uniform_weights([float(p)], float(rho))
    assert moments.threshold == pytest.approx(float(threshold))
    best = p / (p + (1 - p) * rho)
    assert moments.best[0] == pytest.approx(float(best))
    assert all(p * (1 - b) ** 2 + (1 - p) * rho * b**2 >= p * (1 - best) ** 2 + (1 - p) * rho * best**2 for b in (0, p))


def uniform_weights(value, rho):
    """Right answers weigh 1, wrong ones rho, without spread; no signal."""
    value = np.asarray(value, float)
    right, wrong = np.ones_like(value), np.full_like(value, rho)
    return PromptMoments(value, right, wrong, right**2, wrong**2, np.zeros_like(value), 0.0)


def test_spread_values_have_a_higher_threshold_than_their_mean():
    """By hand, for p = .2 and .8: sum p^2 = .68, sum p^2 (1 - p) = .032 + .128 = .16, so 1 + .68 / .16 = 5.25."""
    spread = uniform_weights([0.2, 0.8], 5.25)
    assert spread.threshold == pytest.approx(5.25)
    table = predicted(spread)
    assert table["none"].noise == pytest.approx(table["value"].noise)
    assert uniform_weights([0.5], 1.0).threshold == 3.0  # and that of the mean is 3
    below, above = (predicted(uniform_weights([0.2, 0.8], rho)) for rho in (5.2, 5.3))
    assert below["none"].noise > below["value"].noise and above["none"].noise < above["value"].noise
    assert uniform_weights([0.0, 1.0], 2.0).threshold == np.inf


def test_the_weighted_batch_mean_errs_as_its_formula_says():
    """By drawing 63 other completions of random prompts; the formula is that of a ratio to first order."""
    bandit, rng = Bandit(), np.random.default_rng(0)
    moments, weight = bandit.moments(), np.square(bandit.score).sum(-1)
    answers = rng.choice(12, p=bandit.policy.ravel() / 3, size=(100_000, 63))
    heavy, reward = weight.ravel()[answers], RIGHT.ravel()[answers]
    drawn = (heavy * reward).sum(1) / heavy.sum(1)
    expected = moments.second_moment(drawn[:, None]).mean() - moments.common
    extra = expected - predicted(moments)["weighted_constant"].noise
    found = predicted(moments)["weighted_batch_mean"].noise - predicted(moments)["weighted_constant"].noise
    assert found == pytest.approx(extra, rel=0.05)


def test_without_signals_lengths_go_with_the_variance_of_the_reward():
    """A prompt that is never right has no gradient, and so changes no gain; by hand for GRPO-2 of p = 1/2.

    Groups of two have one right answer half of the time, with advantages of 1/sqrt(2) and -1/sqrt(2), so that
    c = (1/2) (1/4) / (sqrt(1/2) (1/4)) = 1/sqrt(2).
    """
    alone, beside = (predicted(uniform_weights(p, 2.0))["grpo_2"].gain for p in ([0.5], [0.5, 0.0, 1.0]))
    assert alone == pytest.approx(0.5) and beside == pytest.approx(alone)


def test_prompts_without_weight_change_nothing_but_the_mean():
    """A saturated policy has no gradient: its prompts leave no noise, and no design divides by their weight."""
    nothing = np.append(1.0, 0.0)
    moments = PromptMoments(np.array([0.5, 1.0]), nothing, 3 * nothing, nothing, 9 * nothing, np.zeros(2), 0.0)
    alone, beside = predicted(uniform_weights([0.5], 3.0)), predicted(moments)
    for name in ("none", "weighted_constant", "weighted_history", "best", "rloo_4", "grpo_4"):
        assert beside[name].noise == pytest.approx(alone[name].noise / 2), name


def test_prompts_that_are_always_right_or_wrong_count():
    """A prompt that is never right leaves b^2 w, and groups of it are dead."""
    value, right, wrong = (np.array(each) for each in ([0.0, 1.0], [1.0, 2.0], [3.0, 1.0]))
    moments = PromptMoments(value, right, wrong, np.ones(2), np.ones(2), np.zeros(2), 0.0)
    table = predicted(moments)
    assert table["none"].noise == pytest.approx((0 * 3 + 1 * 2) / 2)
    assert table["none_signed"].noise == pytest.approx((0.25 * 3 + 0.25 * 2) / 2)
    assert table["grpo_4"].noise == table["rloo_4"].noise == table["value"].noise == 0.0
    assert np.isinf(table["grpo_4"].relative_noise)
    with pytest.raises(ValueError, match="grpo_4 has no signal"):
        predict_completions(table["none"], table["grpo_4"], completions=8)


def test_completions_go_with_the_noise_below_the_noise_scale_only():
    half, whole = DesignNoise("half", 500.0, 1.0), DesignNoise("whole", 1000.0, 1.0)
    assert predict_completions(half, whole, completions=1) == pytest.approx(501 / 1001)
    assert predict_completions(half, whole, completions=10**6) == pytest.approx(1, abs=1e-3)
    steeper = DesignNoise("steeper", 4000.0, 4.0, gain=4.0)  # twice the advantages: four times both
    assert predict_completions(steeper, whole, completions=32) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "given"),
    [("value", [1.5, 0.5, 0.5]), ("wrong", [1.0, -1.0, 1.0]), ("right", [1.0, 1.0]), ("common", np.nan)],
)
def test_moments_out_of_range_are_refused_by_name(name, given):
    with pytest.raises(ValueError, match=name):
        replace(Bandit().moments(), **{name: given})


@pytest.mark.parametrize(
    "changes",
    [{"completions": 1}, {"history": 0.0}, {"history": np.ones(2)}, {"drift": -1.0}, {"group_sizes": (1,)}],
)
def test_settings_out_of_range_are_refused_by_name(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        predicted(Bandit().moments(), **changes)
