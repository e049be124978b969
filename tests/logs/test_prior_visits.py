"""A log scored as if the run had begun with a prior: what a training loop with that prior gives."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator, Prior, RewardLog, value_risk
from kaestat.logs.prior_visits import log_with_prior

N_PROMPTS, N_STEPS, GROUP = 30, 6, 4
METHODS = ("kae:bandwidth=5", "kae", "kae_eb", "kalman", "bayes_filter", "spo:rho=0.9", "rloo")


def run(step=0):
    rng = np.random.default_rng(5)
    value = rng.beta(0.7, 0.9, N_PROMPTS)
    reward = (rng.random((N_STEPS, N_PROMPTS, GROUP)) < value[:, None]).astype(float)
    when, prompt, _ = np.indices(reward.shape)
    log = RewardLog(prompt.ravel(), step + when.ravel(), reward.ravel())
    known = Prior.of_rates(range(N_PROMPTS), rng.binomial(8, value) / 8, np.full(N_PROMPTS, 8))
    return log, reward, known


def risk_of_a_loop(method, reward, prior):
    """Unbiased value MSE over all visits of the run, from an estimator that begins with the prior."""
    estimator = AdvantageEstimator(method, scale="none")
    if method != "rloo":
        estimator.add_prior(prior)
    ids = np.repeat(np.arange(N_PROMPTS), GROUP)
    squares = []
    for step, now in enumerate(reward):
        estimator.step(ids, now.ravel(), step)
        error = ((now - estimator.values.reshape(now.shape)) ** 2).mean(axis=1)
        squares.append(error - now.var(axis=1, ddof=1))
    return np.mean(squares)


def test_risks_are_those_of_a_training_loop_that_begins_with_the_prior():
    log, reward, prior = run()
    found = value_risk(log, METHODS, prior=prior, n_boot=0).set_index("method")["mse"]
    for method in METHODS:
        assert found[method] == pytest.approx(risk_of_a_loop(method, reward, prior), rel=1e-8)
    cold = value_risk(log, METHODS, n_boot=0).set_index("method")["mse"]
    assert (found[list(METHODS[:5])] < cold[list(METHODS[:5])]).all()


def test_a_log_with_a_prior_has_one_more_visit_of_its_prompts_at_its_date():
    log, _, _ = run()
    whole = log_with_prior(log, {0: (0.25, 8), 3: (1.0, 2), "of another run": (0.5, 4)})
    assert whole.n_visits == log.n_visits + 2 and set(whole.prompts) == set(log.prompts)
    first = whole.frame[whole.frame["step"] == 0]
    by_prompt = first.groupby("prompt")["reward"].agg(["size", "sum"])
    assert {whole.prompts[code]: tuple(row) for code, row in by_prompt.iterrows()} == {0: (8, 2), 3: (2, 2)}
    assert whole.frame["step"].max() == log.frame["step"].max() + 1
    later, _, prior = run(step=100)
    dated = Prior(prior.prompt_ids, prior.sums, step=99)
    assert log_with_prior(later, dated).frame["step"].min() == 99


def test_what_does_not_fit_is_refused():
    log, reward, prior = run()
    with pytest.raises(ValueError, match="none of the log's prompts has one"):
        value_risk(log, ["kae"], prior={"p": (0.5, 8)})
    with pytest.raises(ValueError, match="its step 0 is not before the log's first, 0"):
        value_risk(log, ["kae"], prior=Prior(prior.prompt_ids, prior.sums, step=0))
    size = reward.size
    frame = log.frame
    with pytest.raises(ValueError, match="the log has weight for each completion"):
        weighted = RewardLog(frame["prompt"], frame["step"], frame["reward"], weight=np.ones(size))
        value_risk(weighted, ["kae"], prior=prior)
    with pytest.raises(ValueError, match="the log has groups for each completion"):
        value_risk(RewardLog(frame["prompt"], frame["step"], frame["reward"], np.zeros(size)), ["kae"], prior=prior)
    with pytest.raises(ValueError, match="rewards other than 0 and 1 a prior has only sums"):
        value_risk(log, ["kae"], prior=Prior.of_rewards({0: [0.25, 0.5]}))
