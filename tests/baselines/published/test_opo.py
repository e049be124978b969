"""OPO (Hao et al., 2025): verl's numbers, and refusal of completions without lengths."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator, make_baseline, value_risk
from kaestat.datasets import simulated_run
from tests.helpers.cases import NO_PAST, groups
from tests.helpers.method_case import MethodCase
from tests.helpers.references import group_mean


def verls(rewards, lengths, index):
    """``compute_opo_outcome_advantage`` of verl 0.9.1 (verl/trainer/ppo/core_algos.py), on sums over tokens."""
    baseline = {}
    for group in set(index):
        rows = [row for row, name in enumerate(index) if name == group]
        carried = sum(lengths[row] * rewards[row] for row in rows)
        baseline[group] = carried / sum(lengths[row] for row in rows) if len(rows) > 1 else 0.0
    return [reward - baseline[name] for reward, name in zip(rewards, index, strict=True)]


@pytest.mark.parametrize("seed", range(5))
def test_advantages_are_verls_in_groups_of_two_and_more(seed):
    rng = np.random.default_rng(seed)
    index = rng.permutation(np.repeat([f"{k:x}" for k in range(40)], rng.integers(2, 9, 40))).tolist()
    rewards, lengths = rng.choice([0.0, 0.25, 1.0], len(index)), rng.integers(1, 4000, len(index)).astype(float)
    found = AdvantageEstimator("opo").step(index, rewards, 0, weights=lengths)
    np.testing.assert_allclose(found, verls(rewards, lengths, index), rtol=1e-12, atol=1e-12)
    assert not np.allclose(found, AdvantageEstimator("dr_grpo").step(index, rewards, 0))


def test_completions_without_lengths_are_refused_and_nothing_is_recorded():
    estimator = AdvantageEstimator("opo")
    with pytest.raises(ValueError, match=r"weights: opo weighs .* weights='length'"):
        estimator.step(["a", "a"], [1.0, 0.0], 0)
    assert estimator.last_step == -1
    with pytest.raises(ValueError, match="weights: opo weighs"):
        value_risk(simulated_run(n_prompts=5, n_epochs=2).log, ["opo"])


def test_leaving_the_sample_out_keeps_the_lengths():
    left_out = make_baseline("opo").leave_one_out()
    values = left_out.values(groups([1, 0, 1], weights=[[1, 2, 3]]), NO_PAST, step=0)
    np.testing.assert_allclose(values, [[3 / 5, 1.0, 1 / 3]])
    with pytest.raises(ValueError, match="weights"):
        left_out.values(groups([1, 0, 1]), NO_PAST, step=0)


CASES = [MethodCase("opo", lambda case: group_mean(case, without_own=False), weighted=True)]
