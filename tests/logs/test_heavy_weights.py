"""Intervals of gradient noise where a few prompts have most of the weight, against loops over one formula each."""

import numpy as np
import pytest
from scipy.stats import norm

from kaestat import RewardLog, gradient_differences, gradient_risk
from kaestat.logs import prompt_risks
from kaestat.logs.heavy_weights import weighted_ends
from kaestat.logs.prompt_risks import PromptRisks
from tests.helpers.statistical import Discrepancy, check_mean, generator

LOGS = 1.5 * norm.ppf((np.arange(40) + 0.5) / 40)
WEIGHTS = np.exp(LOGS)  # as even as 40 log-normal weights can be


def slow_end(noise, weights, parts, shared):
    """The end above a positive mean, one prompt at a time."""
    count, mean = len(noise), sum(noise) / len(noise)
    logs = [np.log(weight) for weight in weights]
    center = sum(logs) / count
    variance = sum((log - center) ** 2 for log in logs) / (count - 1)
    error = (variance / count + variance**2 / (2 * (count - 1))) ** 0.5
    most = np.exp(center + variance / 2 + 1.71 * error) / (sum(weights) / count)
    beta = mean / (sum(parts) / count)
    rest = [one - mean - beta * (part - sum(parts) / count) for one, part in zip(noise, parts, strict=True)]
    second, third, fourth = (sum(one**power for one in rest) / count for power in (2, 3, 4))
    reach = 1.71 * (second / (count - 1)) ** 0.5
    reach *= 1 + (((fourth / second**2) - 1) / count) ** 0.5 if third > 0 else 1
    return mean + shared * (((most - 1) * mean) ** 2 + (most * reach) ** 2) ** 0.5


@pytest.mark.parametrize("seed", range(4))
def test_ends_are_those_of_the_slow_formula(seed):
    """Of a level, and of a difference below 0; residuals of some seeds have their long tail above, of some below."""
    rng = generator(seed)
    noise, parts = WEIGHTS * rng.uniform(0.1, 0.4, 40), WEIGHTS * rng.uniform(0.9, 1.1, 40)
    shared = 1 + seed / 2
    columns, ends = np.stack([noise, -noise], axis=1), np.array([[0, -9], [9, 0.0]])
    se = np.full(2, shared * noise.std(ddof=1) / 40**0.5)
    low, high = weighted_ends(columns, np.stack([WEIGHTS, parts]), se, *ends)
    far = slow_end(noise, WEIGHTS, parts, shared)
    np.testing.assert_allclose([low, high], [[0, -far], [far, 0]], rtol=1e-9)


@pytest.mark.parametrize(
    ("noise", "weights"),
    [
        (WEIGHTS, None),
        (9 - WEIGHTS, WEIGHTS),  # the long tail is on the side of 0
        (WEIGHTS - 9, WEIGHTS),
        (WEIGHTS, np.r_[0, WEIGHTS[1:]]),
        (WEIGHTS**0.5, WEIGHTS**0.5),  # most prompts carry the estimate
        (WEIGHTS, np.exp(LOGS + 0.06 * LOGS**2)),  # a heavier tail: skewness 1.1 standard errors above 0
        (WEIGHTS, np.exp(2 * LOGS - 0.17 * LOGS**2)),  # a lighter one: -.6, 1.6 of them below
        (WEIGHTS[2::6], WEIGHTS[2::6] ** 2),  # seven prompts
    ],
)
def test_ends_stay_where_the_tail_is_not_that_of_log_normal_weights(noise, weights):
    both = None if weights is None else np.stack([weights, weights])
    with np.errstate(all="raise"):
        assert weighted_ends(noise[:, None], both, np.ones(1), np.full(1, -9.0), np.full(1, 9)) == (-9, 9)


@pytest.mark.filterwarnings("ignore::kaestat.logs.prompt_risks.FewPromptsWarning")
def test_tables_have_these_ends_for_prompts_of_different_sizes_and_for_methods_that_pool_them(monkeypatch):
    rng, given = generator(3), []
    prompt, step = np.indices((40, 24)).reshape(2, -1)[:, (np.arange(24) < 4 * rng.integers(2, 7, (40, 1))).ravel()]
    weight = WEIGHTS[prompt] * rng.uniform(0.5, 1.5, len(prompt))
    log = RewardLog(prompt, step // 4, rng.integers(0, 2, len(prompt)), weight=weight)
    monkeypatch.setattr(prompt_risks, "weighted_ends", lambda *found: given.append(found) or weighted_ends(*found))
    tables = gradient_risk(log, ["rloo", "kae_eb"]), gradient_differences(log, ["kae_eb"], "none")
    later = log.frame[log.frame["step"] > 0].groupby("prompt")["weight"].agg(["mean", "size"])
    mean = np.average(later["mean"], weights=later["size"])
    parts = mean + later["size"] / later["size"].mean() * (later["mean"] - mean)
    for table, (noise, weights, *ends) in zip(tables, (given[0], given[-1]), strict=True):
        np.testing.assert_allclose(weights, [later["mean"], parts], rtol=1e-12)
        found = np.array([ends[0], *weighted_ends(noise, weights, *ends)])
        np.testing.assert_allclose(table[["se", "ci_low", "ci_high"]].T, found[:, : len(table)])
        assert not np.isclose(found, ends, rtol=1e-6).all(axis=0).any()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_intervals_of_log_normal_weights_cover_and_normal_ones_do_not():
    """Of the noise without a baseline in 2,000 logs of 100 prompts, of which the sums by prompt are drawn."""
    rng, covered = generator(9), []
    for _ in range(2000):
        weight = np.exp(1.5 * rng.standard_normal(100))
        noise = (weight * rng.beta(2, 2, 100))[:, None]
        both = PromptRisks(("a", "grpo"), np.repeat(noise, 2, axis=1), 100, False, (), weights=np.stack([weight] * 2))
        row = both.risk_table(n_boot=0, seed=0).loc[0]
        truth = np.exp(1.5**2 / 2) / 2
        covered.append((row["ci_low"] <= truth <= row["ci_high"], abs(row["mse"] - truth) <= 1.96 * row["se"]))
    ours, normal = np.array(covered, dtype=float).T
    check_mean(ours, target=0.94, detect=0.07, side="at least")
    with pytest.raises(Discrepancy):
        check_mean(normal, target=0.94, detect=0.07, side="at least")
