"""The value risk of a log alone is unbiased for the true squared error of the replayed values."""

import numpy as np
import pytest

from kaestat.baselines import GroupMean, Kae
from kaestat.baselines.base import Baseline
from kaestat.logs.replay import replay
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.risk import risk_baseline, value_risk
from kaestat.logs.scoring import Measure, Scored, visit_risks
from tests.helpers.statistical import Discrepancy, check_mean, generator

RUNS, PROMPTS, STEPS, GROUP = 12_000, 4, 4, 3

KERNELS = ["kae:bandwidth=10", "kae:bandwidth=3,kernel=exponential(rho=0.5)", "kae_eb:bandwidth=20"]
METHODS = [*KERNELS, "grpo", "dr_grpo", "krpo", "reinforce++"]


class Runs:
    """Many small independent runs in one log: run r has its own prompts, and steps, so that no two share either."""

    def __init__(self, salt: int):
        rng = generator(salt)
        start = rng.beta(1.5, 1.0, size=(RUNS, PROMPTS, 1))
        self.value = np.clip(start + 0.06 * np.arange(STEPS) * rng.choice([-1, 1], size=start.shape), 0.02, 0.98)
        reward = (rng.random((*self.value.shape, GROUP)) < self.value[..., None]).astype(float)
        run, prompt, step, _ = np.indices(reward.shape)
        self.log = RewardLog((run * PROMPTS + prompt).ravel(), (run * STEPS + step).ravel(), reward.ravel())
        frame = self.log.frame
        prompt_number = np.asarray(self.log.prompts)[frame["prompt"]]
        self.true_value = self.value.reshape(RUNS * PROMPTS, STEPS)[prompt_number, frame["step"] % STEPS]

    def errors(self, baseline: Baseline) -> tuple[np.ndarray, np.ndarray]:
        """Estimated and true squared error of each run, both (RUNS,), averaged over visits with a past."""
        units = self.log.prompt_units
        estimated = visit_risks(self.log, Scored("", baseline), Measure(True))
        squares = (replay(self.log, baseline)[0] - self.true_value) ** 2
        true = np.add.reduceat(squares, units.first) / units.counts
        kept = units.earlier >= 1
        run = units.visit_step[kept] // STEPS
        return tuple(np.bincount(run, weights=e[kept]) / (PROMPTS * (STEPS - 1)) for e in (estimated, true))


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs(salt=21)


@pytest.fixture(scope="module")
def table(runs) -> dict[str, float]:
    frame = value_risk(runs.log, METHODS, n_boot=0)
    return dict(zip(frame["method"], frame["mse"], strict=True))


@pytest.mark.parametrize("method", METHODS)
def test_value_risk_is_unbiased_for_the_true_squared_error(runs, table, method):
    estimated, true = runs.errors(risk_baseline(method))
    assert table[method] == pytest.approx(estimated.mean(), rel=1e-10)
    check_mean(estimated - true, target=0.0, detect=0.005)
    assert true.mean() > 0.025  # what might be missed is less than a fifth of what is measured


class WithoutAddBack(GroupMean):
    """Dr. GRPO's baseline, hiding that the value contains the completion's own reward."""

    def own_derivative(self, groups, visits, *, step, carry=None):
        return 0.0


class OneStepAhead(Kae):
    """KAE whose history was written before the values were taken: the whole current group counts as past."""

    def values(self, groups, visits, *, step, carry=None):
        xp = groups.xp
        lag = xp.broadcast_to(visits.lag, visits.count.shape)
        lag = xp.concat([lag, xp.zeros_like(groups.count)], axis=-1)
        count = xp.concat([visits.count, groups.count], axis=-1)
        total = xp.concat([visits.total, xp.sum(groups.carried, axis=-1, keepdims=True)], axis=-1)
        weight = self.kernel.weight(lag / 10.0, xp)
        value = xp.sum(weight * total, axis=-1, keepdims=True) / xp.sum(weight * count, axis=-1, keepdims=True)
        return value + xp.zeros_like(groups.reward)


@pytest.mark.parametrize("leaking", [WithoutAddBack(), OneStepAhead(bandwidth=10)], ids=lambda b: type(b).__name__)
def test_a_leak_of_the_own_reward_is_caught(runs, leaking):
    estimated, true = runs.errors(leaking)
    with pytest.raises(Discrepancy, match="off by -"):
        check_mean(estimated - true, target=0.0, detect=0.005)
