"""A log thinned to fewer completions: what is drawn, and that errors against the rest are those against the truth."""

import numpy as np
import pytest

from simulations.comparison import real_log


def test_what_is_drawn_and_what_is_left_are_the_group():
    successes = np.array([[0, 3, 8], [5, 1, 7]])
    reward, rest = real_log.thinned(successes, 2, seed=0)
    assert reward.shape == (real_log.DRAWS, 3, 2, 2)
    np.testing.assert_array_equal(reward.sum(axis=-1) + rest, np.broadcast_to(successes.T, rest.shape))


@pytest.mark.parametrize("name", ["none", "rloo", "kae", "kae_eb", "dr_grpo"])
def test_errors_against_the_rest_are_those_against_the_truth(name, monkeypatch):
    """Success rates that are known: the mean of both errors over many prompts agree within six standard errors."""
    rng = np.random.default_rng(3)
    value = np.clip(rng.beta(0.6, 0.9, (1500, 1)) + 0.02 * np.arange(5), 0, 1)
    reward, rest = real_log.thinned(rng.binomial(8, value), 4, seed=1)
    against_rest = real_log.squared_errors(name, reward, rest).mean(axis=(0, 1))
    values = real_log.served(real_log.baseline_of(name), reward)
    against_truth = ((values - value.T[..., None]) ** 2).mean(axis=(0, 1, 3))
    difference = against_rest - against_truth
    assert abs(difference.mean()) < 6 * difference.std() / len(difference) ** 0.5
    biased = against_rest + (rest / 4 * (1 - rest / 4) / 3).mean(axis=(0, 1)) - against_truth  # noise left in
    assert abs(biased.mean()) > 6 * biased.std() / len(biased) ** 0.5


def test_errors_of_methods_that_pool_prompts_come_from_leaving_prompts_out():
    successes = np.random.default_rng(0).binomial(8, 0.5, (40, 8))
    rows = {name: list(real_log.of_thinned(name, successes, 2)) for name in ("rloo", "kae_eb")}
    of_prompts = real_log.squared_errors("rloo", *real_log.thinned(successes, 2, real_log.SEED))[:, 1:].mean(
        axis=(0, 1)
    )
    assert rows["rloo"][0][3:] == pytest.approx((of_prompts.mean(), of_prompts.std(ddof=1) / 40**0.5))
    naive = real_log.squared_errors("kae_eb", *real_log.thinned(successes, 2, real_log.SEED))[:, 1:].mean(axis=(0, 1))
    assert rows["kae_eb"][0][3] == pytest.approx(naive.mean())
    assert rows["kae_eb"][0][4] != pytest.approx(naive.std(ddof=1) / 40**0.5, rel=1e-3)
