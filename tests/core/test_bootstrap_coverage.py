"""Coverage of intervals over prompts, with both error rates stated and a negative control each."""

from __future__ import annotations

import numpy as np
import pytest

from kaestat.core.bootstrap import cluster_bootstrap, mean_with_interval
from tests.helpers.statistical import Discrepancy, check_mean, generator


def test_the_bootstrap_interval_over_prompts_covers_and_one_over_visits_does_not():
    """Percentile intervals of the mean of 60 prompts with 5 dependent visits each."""
    n_prompts, n_visits, at_once, rounds = 60, 5, 40, 250
    rng = generator(17)
    covered = np.empty((2, rounds))
    for r in range(rounds):
        effect = rng.standard_normal((n_prompts, 1, at_once))
        visits = effect + 0.5 * rng.standard_normal((n_prompts, n_visits, at_once))
        for kind, samples in enumerate((visits.mean(axis=1), visits.reshape(-1, at_once))):
            draws = cluster_bootstrap(samples, n_boot=600, seed=int(rng.integers(2**31)))
            _, _, low, high = mean_with_interval(samples, draws)
            covered[kind, r] = ((low <= 0) & (0 <= high)).mean()  # columns share draws: one observation a round
    check_mean(covered[0], target=0.95, detect=0.02, side="at least")
    check_mean(covered[0], target=0.97, detect=0.015, side="at most")  # the end on the longer tail is moved out
    with pytest.raises(Discrepancy):
        check_mean(covered[1], target=0.95, detect=0.05, side="at least")


@pytest.mark.parametrize("n_prompts", [4, 60])
def test_the_interval_of_a_mean_over_few_prompts_covers_too(n_prompts):
    samples = generator(18).standard_normal((n_prompts, 20_000))
    _, se, low, high = mean_with_interval(samples, np.empty((0, 20_000)))
    check_mean((low <= 0) & (0 <= high), target=0.95, detect=0.015, side="at least")
    check_mean((low <= 0) & (0 <= high), target=0.97, detect=0.015, side="at most")
    if n_prompts == 4:
        with pytest.raises(Discrepancy):  # the normal interval
            check_mean(np.abs(samples.mean(axis=0)) <= 1.96 * se, target=0.95, detect=0.02)


def test_the_interval_of_a_mean_of_skewed_contributions_covers_and_students_does_not():
    """40 prompts whose contributions have a skewness of 3.8, as value MSE has where nearly all rewards are 1."""
    shape, n_prompts = 0.28, 40
    samples = generator(19).gamma(shape, size=(n_prompts, 20_000))
    mean, se, low, high = mean_with_interval(samples, np.empty((0, 20_000)))
    check_mean((low <= shape) & (shape <= high), target=0.94, detect=0.015, side="at least")
    with pytest.raises(Discrepancy):
        check_mean(np.abs(mean - shape) <= 2.0227 * se, target=0.94, detect=0.02, side="at least")
