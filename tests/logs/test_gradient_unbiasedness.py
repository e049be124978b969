"""The gradient risk of a log alone is unbiased for the expected noise of the values, whose weights are known."""

import numpy as np
import pytest

from kaestat.baselines import GroupMean
from kaestat.logs.gradient_risk import gradient_risk
from kaestat.logs.replay import replay
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.risk import risk_baseline
from tests.helpers.statistical import Discrepancy, check_mean, generator

RUNS, PROMPTS, STEPS, GROUP = 1_500, 6, 6, 4
METHODS = ["none", "grpo", "reinforce++", "kae:bandwidth=3", "kae_eb:bandwidth=6", "kalman"]


class Runs:
    """Small independent runs in one log: run r has its own prompts, and steps, so that no two share either.

    Wrong answers weigh five times right ones on average, and every prompt has a scale of its own; weights are gamma
    distributed about that. So the expectation of ``W (R - b)^2`` over a completion that is yet to be drawn, for a value
    b that is at hand, is ``p w_1 (1 - b)^2 + (1 - p) w_0 b^2``.
    """

    def __init__(self, salt: int):
        rng = generator(salt)
        start = rng.beta(2.0, 1.0, size=(RUNS, PROMPTS, 1))
        self.p = np.clip(start + 0.05 * np.arange(STEPS) * rng.choice([-1, 1], size=start.shape), 0.03, 0.97)
        right = rng.gamma(4.0, 0.25, size=(RUNS, PROMPTS, 1))
        mean = np.stack([5 * right + 0 * self.p, right + 0 * self.p], axis=-1)  # of wrong answers, and of right ones
        reward = (rng.random((*self.p.shape, GROUP)) < self.p[..., None]).astype(int)
        weight = np.take_along_axis(mean, reward, axis=-1) * rng.gamma(2.0, 0.5, size=reward.shape)
        run, prompt, step, _ = np.indices(reward.shape)
        self.log = RewardLog(
            (run * PROMPTS + prompt).ravel(), (run * STEPS + step).ravel(), reward.ravel(), weight=weight.ravel()
        )
        frame = self.log.frame
        where = np.asarray(self.log.prompts)[frame["prompt"]], frame["step"] % STEPS
        self.true_p = self.p.reshape(-1, STEPS)[where]
        self.wrong, self.right = (mean[..., kind].reshape(-1, STEPS)[where] for kind in (0, 1))

    def noises(self, baseline, weights) -> tuple[np.ndarray, np.ndarray]:
        """Estimated and true noise of each run, both (RUNS,), over completions of visits with a past."""
        values, _ = replay(self.log, baseline, weights)
        units = self.log.prompt_units
        kept = np.repeat(units.earlier >= 1, units.counts)
        estimated = self.log.frame["weight"] * (self.log.frame["reward"] - values) ** 2
        true = self.true_p * self.right * (1 - values) ** 2 + (1 - self.true_p) * self.wrong * values**2
        run = self.log.frame["step"].to_numpy()[kept] // STEPS
        return tuple(
            np.bincount(run, weights=each[kept]) / (PROMPTS * (STEPS - 1) * GROUP) for each in (estimated, true)
        )


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs(salt=31)


@pytest.fixture(scope="module")
def table(runs) -> dict:
    frame = gradient_risk(runs.log, METHODS, n_boot=0)
    return {(row.method, row.weights): row.noise for row in frame.itertuples()}


@pytest.mark.parametrize("method", METHODS)
def test_gradient_risk_is_unbiased_for_the_expected_noise(runs, table, method):
    baseline = risk_baseline(method)
    rows = [weights for name, weights in table if name == method]
    assert rows == (["none", "score_norm"] if baseline.takes_weights and method != "none" else ["none"])
    for weights in rows:
        estimated, true = runs.noises(baseline, None if weights == "none" else "weight")
        assert table[method, weights] == pytest.approx(estimated.mean(), rel=1e-10)
        check_mean(estimated - true, target=0.0, detect=0.06)
        assert true.mean() > 0.3  # what might be missed is less than a fifth of what is measured


def test_the_own_reward_inside_is_caught(runs):
    estimated, true = runs.noises(GroupMean(without_own=False), "weight")
    with pytest.raises(Discrepancy, match="off by -"):
        check_mean(estimated - true, target=0.0, detect=0.06)


def test_the_own_weight_inside_is_caught(runs):
    """A value that leaves its own reward out, but is divided by a mass with its own weight in it."""

    class OwnWeightInside(GroupMean):
        def values(self, groups, visits, *, step, carry=None):
            mass, carried = groups.others()
            return carried / (mass + groups.mass)

    estimated, true = runs.noises(OwnWeightInside(without_own=True), "weight")
    with pytest.raises(Discrepancy):
        check_mean(estimated - true, target=0.0, detect=0.06)
