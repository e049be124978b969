"""Intervals where few prompts have most of the reward variance or of the weight, against slow formulas."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import betabinom, kurtosis, norm, skew, t

from kaestat import RewardLog, gradient_differences, gradient_risk, risk_differences, value_risk
from kaestat.logs import few_prompts
from kaestat.logs import prompt_risks as module
from kaestat.logs.few_prompts import carried_ends, variance_limits, weighted_ends
from kaestat.logs.prompt_risks import PromptRisks
from kaestat.logs.risk import prompt_risks
from tests.helpers.statistical import Discrepancy, check_mean, generator

SUCCESSES, COUNTS = np.array([0, 0, 1, 0, 9, 2, 0, 0, 31.0]), np.array([40, 40, 48, 40, 64, 40, 32, 40, 64.0])
SOME = np.ones(1)
LOGS = 1.5 * norm.ppf((np.arange(40) + 0.5) / 40)
WEIGHTS = np.exp(LOGS)  # as even as 40 log-normal weights can be


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


def slow_far(noise, weights, parts, shared):
    """The end above a positive mean."""
    count, logs, mean = len(noise), np.log(weights), noise.mean()
    v = logs.var(ddof=1)
    most = np.exp(logs.mean() + v / 2 + 1.71 * (v / count + v**2 / (2 * (count - 1))) ** 0.5) / weights.mean()
    rest = noise - mean - mean / parts.mean() * (parts - parts.mean())
    reach = most * 1.71 * rest.std(ddof=1) / count**0.5
    reach *= 1 + ((kurtosis(rest, fisher=False) - 1) / count) ** 0.5 if skew(rest) > 0 else 1
    return mean + shared * np.hypot((most - 1) * mean, reach)


@pytest.mark.parametrize("seed", range(4))
def test_the_far_end_is_that_of_the_slow_formula(seed):
    """Of a level, and of a difference below 0; residuals of some seeds have their long tail above, of some below."""
    rng = generator(seed)
    noise, parts = WEIGHTS * rng.uniform(0.1, 0.4, 40), WEIGHTS * rng.uniform(0.9, 1.1, 40)
    shared = 1 + seed / 2
    se, ends = np.full(2, shared * noise.std(ddof=1) / 40**0.5), np.array([[0, -9], [9, 0.0]])
    found = weighted_ends(np.stack([noise, -noise], axis=1), np.stack([WEIGHTS, parts]), se, *ends)
    far = slow_far(noise, WEIGHTS, parts, shared)
    np.testing.assert_allclose(found, [[0, -far], [far, 0]], rtol=1e-9)


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
    monkeypatch.setattr(module, "weighted_ends", lambda *found: given.append(found) or weighted_ends(*found))
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
    rng, covered, truth = generator(9), [], np.exp(1.5**2 / 2) / 2
    for _ in range(2000):
        weight = np.exp(1.5 * rng.standard_normal(100))
        noise = np.stack([weight * rng.beta(2, 2, 100)] * 2, axis=1)
        scored = PromptRisks(("a", "grpo"), noise, 100, False, (), weights=np.stack([weight] * 2))
        row = scored.risk_table(n_boot=0, seed=0).loc[0]
        covered.append((row["ci_low"] <= truth <= row["ci_high"], abs(row["mse"] - truth) <= 1.96 * row["se"]))
    ours, normal = np.array(covered, dtype=float).T
    check_mean(ours, target=0.94, detect=0.07, side="at least")
    with pytest.raises(Discrepancy):
        check_mean(normal, target=0.94, detect=0.07, side="at least")
