"""Intervals of value risks where few prompts have most of the reward variance, against loops over one formula each."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import betabinom, t

from kaestat import RewardLog, risk_differences, value_risk
from kaestat.logs import few_prompts
from kaestat.logs.few_prompts import carried_ends, variance_limits
from kaestat.logs.risk import prompt_risks
from tests.helpers.statistical import Discrepancy, check_mean, generator

SUCCESSES, COUNTS = np.array([0, 0, 1, 0, 9, 2, 0, 0, 31.0]), np.array([40, 40, 48, 40, 64, 40, 32, 40, 64.0])
SOME = np.ones(1)


def limits(successes, counts):
    """Each point of the grid in turn, as SciPy has it."""
    found = []
    for concentration in few_prompts.CONCENTRATIONS:
        for mean in sorted({*few_prompts.RARER, *(1 - few_prompts.RARER)}):
            a, b = mean * concentration, (1 - mean) * concentration
            log = sum(betabinom.logpmf(k, n, a, b) for k, n in zip(successes, counts, strict=True))
            found.append((a * b / ((a + b) * (a + b + 1)), log))
    variance, log = np.array(sorted(found)).T
    share = np.cumsum(np.exp(log - log.max()))
    return [min(v for v, s in zip(variance, share / share[-1], strict=True) if s >= level) for level in (0.025, 0.975)]


def slow_ends(risk, successes, counts, *, level):
    v = [k * (n - k) / (n * (n - 1)) for k, n in zip(successes, counts, strict=True)]
    mean, size = sum(risk) / len(risk), len(risk)
    if mean < 0:
        low, high = slow_ends([-one for one in risk], successes, counts, level=False)
        return (mean if level else -high), -low
    error = [r - sum(risk) / sum(v) * one for r, one in zip(risk, v, strict=True)]
    usual = sum(e**2 for e in error) / (size - 1)
    each = [e / one for e, one in zip(error, v, strict=True) if one > 0]
    alike = sum(e**2 for e in each) / (len(each) - 1) * sum(one**2 for one in v) / size
    reach = t.ppf(0.975, size - 1) * ((usual + alike) / 2 / size) ** 0.5
    least, most = (limit / (sum(v) / size) for limit in limits(successes, counts))
    assert least < 1 < most
    high = mean + ((mean * (most - 1)) ** 2 + (reach * most) ** 2) ** 0.5
    low = min(
        mean - ((mean * (1 - least)) ** 2 + (reach * least) ** 2) ** 0.5, (mean - reach) * (most if mean < reach else 1)
    )
    return (max(low, 0) if level else low), high


@pytest.fixture
def coarse(monkeypatch):
    """A grid that the slow formula gets through."""
    monkeypatch.setattr(few_prompts, "CONCENTRATIONS", np.geomspace(0.1, 300, 9))
    monkeypatch.setattr(few_prompts, "RARER", np.geomspace(1e-4, 0.5, 21))


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("per_variance", [0.05, 0.004, -0.004, -0.05])
def test_ends_are_those_of_the_slow_formula(per_variance):
    """With .004 the noise is larger than the risk."""
    variance = SUCCESSES * (COUNTS - SUCCESSES) / (COUNTS * (COUNTS - 1))
    risk = variance * (per_variance + 0.02 * generator(3).normal(size=9))
    for level in (True, False):
        found = carried_ends(risk[:, None], np.stack([SUCCESSES, COUNTS]), [False], 0 * SOME, SOME, level=level)
        np.testing.assert_allclose(np.ravel(found), slow_ends(risk, SUCCESSES, COUNTS, level=level), rtol=1e-9)


def test_failures_give_the_same_limits_as_successes():
    np.testing.assert_allclose(variance_limits(SUCCESSES, COUNTS), variance_limits(COUNTS - SUCCESSES, COUNTS))


def test_ends_stay_where_nothing_was_shown():
    risk = np.array([0, 0, 0.1, 0, 1.0, 0.3, 0, 0, 2])[:, None]
    rates = np.stack([SUCCESSES, COUNTS])
    kept = (risk, rates, [True]), (risk, None, [False]), (risk[2:], rates[:, 2:], [False])
    even, lone = np.linspace(1, 2, 9)[:, None], np.stack([SUCCESSES * (SUCCESSES > 30), COUNTS])
    for risks, known, pooled in (
        *kept,
        (even, rates, [False]),
        (risk, lone, [False]),
        (risk, np.stack([COUNTS / 4, COUNTS]), [False]),
    ):
        assert carried_ends(risks, known, pooled, -SOME, 9 * SOME, level=True) == (-1, 9)
    assert carried_ends(risk, rates, [False], -SOME, 9 * SOME, level=True) != (-1, 9)


def sparse_log(low=0.0, high=1.0, third=None):
    rng = np.random.default_rng(5)
    reward = np.where(rng.random((10, 6, 8)) < 0.003 * 2.0 ** np.arange(10)[:, None, None] / 2, high, low)
    if third is not None:
        reward[0, 0, 0] = third
    prompt, step, _ = np.indices(reward.shape)
    return RewardLog(prompt.ravel(), step.ravel(), reward.ravel())


@pytest.mark.filterwarnings("ignore::kaestat.logs.prompt_risks.FewPromptsWarning")
def test_tables_have_these_ends_for_methods_that_do_not_pool_prompts():
    log, methods = sparse_log(), ["kae:bandwidth=10", "james_stein"]
    reward = log.frame.groupby("prompt")["reward"]
    rates = np.stack([reward.sum().to_numpy(), reward.count().to_numpy()])
    risks = prompt_risks(log, [*methods, "grpo"]).per_prompt
    for table, column, level in (
        (value_risk, risks[:, :1], True),
        (risk_differences, risks[:, :1] - risks[:, 2:], False),
    ):
        ends = table(log, methods)[["ci_low", "ci_high"]].to_numpy()
        np.testing.assert_allclose(ends[0], np.ravel(carried_ends(column, rates, [False], SOME, SOME, level=level)))
        softer = table(sparse_log(third=1e-9), methods)[["ci_low", "ci_high"]].to_numpy()  # no longer two rewards
        assert abs(softer[0] - ends[0]).max() > 0.05 * abs(ends[0]).max()
        np.testing.assert_allclose(softer[1], ends[1], rtol=1e-5)
        twice = table(sparse_log(-1.0, 1.0), methods[:1])[["ci_low", "ci_high"]]
        np.testing.assert_allclose(twice, 4 * ends[:1], atol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_intervals_of_few_successes_cover_and_normal_ones_do_not():
    """Of the MSE of a kernel mean, in 600 logs of 10 prompts with constant values near .03."""
    rng, covered = generator(7), []
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    variance = weights @ (expit(nodes - 3.5) * expit(3.5 - nodes)) / weights.sum()
    past = [8 * (1 - np.arange(1, step + 1) / 10)[:, None] ** [1, 2] for step in range(1, 8)]
    truth = variance * np.mean([(7 + sums[1]) / (7 + sums[0]) ** 2 for sums in (each.sum(axis=0) for each in past)])
    for _ in range(600):
        success = rng.random((10, 8, 8)) < expit(rng.standard_normal((10, 1, 1)) - 3.5)
        prompt, step, _ = np.indices(success.shape)
        log = RewardLog(prompt.ravel(), step.ravel(), success.ravel().astype(float))
        row = prompt_risks(log, ["kae:bandwidth=10", "grpo"]).risk_table(n_boot=0, seed=0).loc[0]
        covered.append((row["ci_low"] <= truth <= row["ci_high"], abs(row["mse"] - truth) <= 1.96 * row["se"]))
    ours, normal = np.array(covered, dtype=float).T
    check_mean(ours, target=0.95, detect=0.09, side="at least")
    with pytest.raises(Discrepancy):
        check_mean(normal, target=0.95, detect=0.15, side="at least")
