"""The study of intervals where few prompts carry an estimate simulates what the public tables compute."""

from __future__ import annotations

import numpy as np
import pytest

from kaestat import gradient_risk, value_risk
from kaestat.logs.reward_log import RewardLog
from simulations.harness import Cell, Streams
from simulations.studies import interval_skewed


@pytest.mark.parametrize(("history", "method"), [(False, "grpo"), (True, "kae:bandwidth=10")])
@pytest.mark.parametrize("name", ["value .97, 40 prompts", "weighted completions, 30 prompts"])
def test_the_simulated_contributions_and_intervals_are_those_of_the_public_tables(name, history, method):
    case, streams = interval_skewed.CASES[name], Streams(0, "ab", range(3))
    samples = interval_skewed.simulate(Cell({"case": name, "history": history}), streams)
    reward = interval_skewed.rewards(case, streams)[-1].astype(float)
    weight = np.broadcast_to(interval_skewed.weights(case, streams), (3, *reward.shape))[-1]
    prompt, step, _ = np.indices(reward.shape)
    log = RewardLog(prompt.ravel(), step.ravel(), reward.ravel(), weight=weight.ravel())
    score = value_risk if case.weights == "none" else gradient_risk
    row = score(log, [method], n_boot=interval_skewed.N_BOOT, seed=0).iloc[0]
    expected = [samples[column][-1] for column in ("mean", "skewed|low", "skewed|high")]
    found = row[["mse" if case.weights == "none" else "noise", "ci_low", "ci_high"]].astype(float)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
