"""Intervals of risk differences between methods that pool prompts: the jackknife covers, the bootstrap does not.

Many small independent runs stand in one log, each with prompts and steps of its own, so that one replay serves all.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

from kaestat.bootstrap import cluster_bootstrap, mean_with_interval
from kaestat.logs.jackknife import jackknife_groups, jackknife_interval
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.risk import risk_baseline, visit_risk
from tests.helpers.statistical import Discrepancy, check_mean, generator

RUNS, PROMPTS, STEPS, GROUP = 900, 40, 5, 2
# With a bandwidth of its own: one that is learned would be learned from all runs, which then are not independent.
POOLING = ("james_stein", "kae_eb:bandwidth=20")


class Runs:
    """Runs of a few prompts, visited at every step, whose logits walk together and each by itself."""

    def __init__(self, salt: int):
        rng = generator(salt)
        start = logit(np.clip(rng.beta(0.8, 0.8, size=(RUNS, PROMPTS, 1)), 0.02, 0.98))
        common = np.cumsum(rng.normal(0, 0.2, size=(RUNS, 1, STEPS)), axis=-1)
        own = np.cumsum(rng.normal(0, 0.2, size=(RUNS, PROMPTS, STEPS)), axis=-1)
        value = expit(start + common + own)
        reward = (rng.random((*value.shape, GROUP)) < value[..., None]).astype(float)
        run, prompt, step, _ = np.indices(reward.shape)
        self.log = RewardLog((run * PROMPTS + prompt).ravel(), (run * STEPS + step).ravel(), reward.ravel())
        codes = np.asarray(self.log.prompts)
        self.run, self.prompt = codes // PROMPTS, codes % PROMPTS
        self.group = jackknife_groups(PROMPTS, seed=1)[self.prompt]

    def per_prompt(self, method: str, kept: np.ndarray) -> np.ndarray:
        """Risk of each prompt that is kept, (RUNS, number kept), at visits with a past."""
        log = self.log.subset(kept)
        units = log.prompt_units
        risk = visit_risk(log, risk_baseline(method), absolute=True)
        past = units.earlier >= 1
        total = np.bincount(units.visit_prompt[past], weights=risk[past], minlength=len(log.prompts))
        order = np.lexsort((self.prompt[kept], self.run[kept]))
        return (total / (STEPS - 1))[order].reshape(RUNS, -1)

    def compared(self, method: str, reference: str) -> dict[str, np.ndarray]:
        """Estimates of each run and of each without a group: difference and ratio, and the prompts' differences."""
        everything = np.ones(len(self.run), dtype=bool)
        ours, theirs = (self.per_prompt(name, everything) for name in (method, reference))
        left = [
            [self.per_prompt(name, self.group != k).mean(axis=1) for name in (method, reference)] for k in range(20)
        ]
        a, b = np.moveaxis(np.array(left), 1, 0)
        return {
            "paired": ours - theirs,
            "risks": np.stack([ours, theirs]),
            "difference": (ours - theirs).mean(axis=1),
            "ratio": ours.mean(axis=1) / theirs.mean(axis=1),
            "left_difference": a - b,
            "left_ratio": a / b,
        }


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs(salt=31)


@pytest.fixture(scope="module")
def compared(runs):
    return {method: runs.compared(method, "grpo") for method in POOLING}


def covers(low, high, truth):
    return ((low <= truth) & (truth <= high)).astype(float)


@pytest.mark.parametrize("method", POOLING)
def test_the_jackknife_covers_differences_and_ratios(compared, method):
    found = compared[method]
    risks = found["risks"].mean(axis=(1, 2))  # of so many runs: what each run estimates
    for name, truth in (("difference", risks[0] - risks[1]), ("ratio", risks[0] / risks[1])):
        _, low, high = jackknife_interval(found[name], found[f"left_{name}"])
        check_mean(covers(low, high, truth), target=0.93, detect=0.08, side="at least")


def test_the_bootstrap_over_prompts_does_not(compared):
    found = compared["james_stein"]
    risks, covered = found["risks"].mean(axis=(1, 2)), np.empty((2, RUNS))
    for r in range(RUNS):
        columns = np.stack([found["paired"][r], *found["risks"][:, r]], axis=1)
        draws = cluster_bootstrap(columns, n_boot=300, seed=r)
        _, _, low, high = mean_with_interval(columns, draws)
        covered[0, r] = covers(low[0], high[0], risks[0] - risks[1])
        covered[1, r] = covers(*np.quantile(draws[:, 1] / draws[:, 2], [0.025, 0.975]), risks[0] / risks[1])
    for column in covered:
        with pytest.raises(Discrepancy):
            check_mean(column, target=0.93, detect=0.14, side="at least")
